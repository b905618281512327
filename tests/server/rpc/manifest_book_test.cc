#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/join_parts.pb.h"
#include "proto/manifest_message.h"
#include "proto/manifest_size.h"
#include "server/base/field_error.h"
#include "server/rpc/coordinator_service.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

Manifest Named(const std::string& name, int tensors = 2) {
  Manifest manifest;
  for (int i = 0; i < tensors; ++i) {
    manifest.tensors.push_back({absl::StrCat(name, i), {3, 4}, "g", i == 1});
  }
  return manifest;
}

std::string Bytes(const Manifest& manifest) {
  return ToProto(manifest).SerializeAsString();
}

TEST(ManifestBookTest, OneManifestIsThereOnceHoweverOftenItComes) {
  ManifestBook book;
  const auto first = book.Take(Bytes(Named("a")), "one");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(CompareManifests(**first, Named("a")), absl::OkStatus());
  EXPECT_TRUE(first->Shares(*book.Take(Bytes(Named("a")), "two")));
  EXPECT_FALSE(first->Shares(*book.Take(Bytes(Named("b")), "one")));
  // Written in another way, and with what nobody knows.
  v1::Manifest message = ToProto(Named("a"));
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(99, 1);
  message.mutable_tensors(0)
      ->GetReflection()
      ->MutableUnknownFields(message.mutable_tensors(0))
      ->AddLengthDelimited(98, std::string(1000, 'x'));
  EXPECT_TRUE(first->Shares(*book.Take(message.SerializeAsString(), "two")));
  EXPECT_EQ(*book.MessageOf(*first), Bytes(Named("a")));
}

TEST(ManifestBookTest, OfOneThatNobodyBroughtItMakesTheBytesOnce) {
  ManifestBook book;
  const SharedManifest recovered(Named("r"));
  const auto bytes = book.MessageOf(recovered);
  EXPECT_EQ(*bytes, Bytes(Named("r")));
  EXPECT_EQ(book.MessageOf(recovered), bytes);
  EXPECT_TRUE(recovered.Shares(*book.Take(*bytes, "one")));
}

TEST(ManifestBookTest, WhatDiffersIsBoundedForEachAndForAll) {
  const int64_t one =
      ManifestBytes(SizeOf(Named("a"))) + 2 * Bytes(Named("a")).size();
  ManifestBook book(/*max_bytes=*/3 * one, /*max_own_bytes=*/2 * one);
  auto a = book.Take(Bytes(Named("a")), "one");
  const auto b = book.Take(Bytes(Named("b")), "one");
  ASSERT_TRUE(a.ok() && b.ok());
  const absl::Status own = book.Take(Bytes(Named("c")), "one").status();
  EXPECT_TRUE(IsLimitError(own)) << own;
  EXPECT_THAT(std::string(own.message()),
              HasSubstr("bytes of manifests of identity \"one\" is "));
  // One that is there costs nothing more.
  EXPECT_TRUE(book.Take(Bytes(Named("b")), "one").ok());
  const auto c = book.Take(Bytes(Named("c")), "two");
  ASSERT_TRUE(c.ok()) << c.status();
  const absl::Status all = book.Take(Bytes(Named("d")), "three").status();
  EXPECT_TRUE(IsLimitError(all)) << all;
  EXPECT_THAT(std::string(all.message()),
              HasSubstr("bytes of manifests of all callers is "));
  a = absl::CancelledError("gone");
  EXPECT_TRUE(book.Take(Bytes(Named("d")), "three").ok());
}

TEST(ManifestBookTest, OneAloneAlwaysFits) {
  ManifestBook book(/*max_bytes=*/1, /*max_own_bytes=*/1);
  EXPECT_TRUE(book.Take(Bytes(Named("a", 100)), "").ok());
}

TEST(ManifestBookTest, WhatIsTooLargeIsNotParsed) {
  ManifestBook book;
  std::string empty_tensors(2 * (kMostTensors + 1), '\0');
  for (size_t i = 0; i < empty_tensors.size(); i += 2) empty_tensors[i] = '\n';
  const absl::Status status = book.Take(empty_tensors, "").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(std::string(status.message()),
            "manifest is 100001 tensors; allowed: 1 to 100000 tensors");
  empty_tensors.resize(2 * kMostTensors);
  EXPECT_TRUE(book.Take(empty_tensors, "").ok());
}

// That is the number that ValidateManifest allows.
TEST(ManifestSizeTest, MostTensors) {
  Manifest manifest = Named("x", kMostTensors);
  EXPECT_EQ(ValidateManifest(manifest), absl::OkStatus());
  manifest.tensors.push_back({"more", {1}, "", false});
  EXPECT_FALSE(ValidateManifest(manifest).ok());
}

TEST(ManifestSizeTest, IsKnownBeforeItIsParsed) {
  for (const Manifest& manifest :
       {Named("a"), Named("longer name", 300), Manifest()}) {
    const auto size = SizeOfMessage(Bytes(manifest));
    ASSERT_TRUE(size.ok()) << size.status();
    const ManifestSize exact = SizeOf(manifest);
    EXPECT_EQ(size->tensors, exact.tensors);
    EXPECT_GE(size->dimensions, exact.dimensions);
    EXPECT_GE(size->text_bytes, exact.text_bytes);
    EXPECT_LE(ManifestBytes(*size), 2 * ManifestBytes(exact));
  }
  for (const std::string& bad :
       {std::string("\x0a"), std::string("\x0a\x05x"),
        std::string("\x0a\x01\x0a"), std::string("\x07"),
        std::string("\x0a\xff\xff\xff\xff\x0f")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SizeOfMessage(bad).status())) << bad;
  }
}

// A server reads one for the other.
TEST(JoinPartsTest, AreAJoinRequestOnTheWire) {
  const auto* request = v1::JoinRequest::descriptor();
  const auto* parts = v1::JoinParts::descriptor();
  ASSERT_EQ(request->field_count(), parts->field_count());
  for (int i = 0; i < request->field_count(); ++i) {
    const auto* field = request->field(i);
    const auto* part = parts->FindFieldByNumber(field->number());
    ASSERT_NE(part, nullptr) << field->name();
    EXPECT_EQ(part->name(), field->name());
    EXPECT_EQ(part->is_repeated(), field->is_repeated());
    if (field->name() == "manifest") {
      EXPECT_EQ(part->type(), google::protobuf::FieldDescriptor::TYPE_BYTES);
    } else {
      EXPECT_EQ(part->type(), field->type()) << field->name();
    }
  }
}

}  // namespace
}  // namespace agg
