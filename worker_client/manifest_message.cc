#include "worker_client/manifest_message.h"

#include <utility>

namespace agg {

v1::Manifest ToMessage(const Manifest& manifest) {
  v1::Manifest message;
  for (const TensorSpec& tensor : manifest.tensors) {
    v1::Tensor* to = message.add_tensors();
    to->set_name(tensor.name);
    for (int64_t dimension : tensor.shape) to->add_shape(dimension);
    to->set_group(tensor.group);
    to->set_optional(tensor.optional);
  }
  return message;
}

Manifest FromMessage(const v1::Manifest& message) {
  Manifest manifest;
  for (const v1::Tensor& from : message.tensors()) {
    TensorSpec tensor;
    tensor.name = from.name();
    tensor.shape.assign(from.shape().begin(), from.shape().end());
    tensor.group = from.group();
    tensor.optional = from.optional();
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

}  // namespace agg
