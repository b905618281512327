// A manifest is the same after its way over the wire.
#include "proto/manifest_message.h"

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(ManifestMessageTest, NothingIsLost) {
  TensorSpec tensor;
  tensor.name = "w";
  tensor.shape = {3, 0, 5};
  tensor.group = "g";
  tensor.optional = true;
  const Manifest manifest{{tensor, TensorSpec()}};
  EXPECT_TRUE(CompareManifests(manifest, FromProto(ToProto(manifest))).ok());
}

}  // namespace
}  // namespace agg
