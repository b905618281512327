// Field by field, so that a field which is added to one side is missed here
// in one place only.
#include "proto/manifest_message.h"

#include <utility>

namespace agg {

v1::Manifest ToProto(const Manifest& manifest) {
  v1::Manifest message;
  for (const TensorSpec& tensor : manifest.tensors) {
    v1::Tensor* to = message.add_tensors();
    to->set_name(tensor.name);
    to->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    to->set_group(tensor.group);
    to->set_optional(tensor.optional);
  }
  return message;
}

Manifest FromProto(const v1::Manifest& message) {
  Manifest manifest;
  manifest.tensors.reserve(message.tensors_size());
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
