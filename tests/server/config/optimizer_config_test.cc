#include "server/config/optimizer_config.h"

#include <google/protobuf/descriptor.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_table.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

// The optimizer's smallest configuration, with one more field set to a value
// that is legal where the field is used.
v1::OptimizerConfig With(const OptimizerLine& line,
                         const google::protobuf::FieldDescriptor& field) {
  v1::OptimizerConfig config;
  config.set_kind(line.name);
  CompleteOptimizer(&config);
  const auto* reflection = config.GetReflection();
  if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL) {
    reflection->SetBool(&config, &field, true);
  } else {
    reflection->SetDouble(&config, &field, 0.5);
  }
  if (field.name() == "nesterov" && line.Uses("momentum")) {
    config.set_momentum(0.5);
  }
  return config;
}

TEST(OptimizerConfigTest, EveryOptimizerTakesTheFieldsOfItsLineAndNoOthers) {
  const auto& descriptor = *v1::OptimizerConfig::descriptor();
  for (const OptimizerLine& line : kOptimizers) {
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const auto& field = *descriptor.field(i);
      if (field.name() == "kind") continue;
      const auto options = MakeOptimizerOptions(With(line, field));
      EXPECT_EQ(options.ok(), line.Uses(field.name().c_str()))
          << line.name << ", " << field.name() << ": " << options.status();
      if (!options.ok()) {
        EXPECT_THAT(std::string(options.status().message()),
                    HasSubstr("optimizer." + field.name()));
      }
    }
  }
}

// A misspelt field would never be used.
TEST(OptimizerConfigTest, EveryFieldOfALineIsOneOfTheConfig) {
  const auto& descriptor = *v1::OptimizerConfig::descriptor();
  for (const OptimizerLine& line : kOptimizers) {
    std::string field;
    for (const char* c = line.fields;; ++c) {
      if (*c != ' ' && *c != 0) {
        field.push_back(*c);
        continue;
      }
      EXPECT_TRUE(field.empty() || descriptor.FindFieldByName(field) != nullptr)
          << line.name << ", " << field;
      field.clear();
      if (*c == 0) break;
    }
  }
}

TEST(OptimizerConfigTest, DefaultsAreThoseOfTheOptions) {
  for (const OptimizerLine& line : kOptimizers) {
    v1::OptimizerConfig config;
    config.set_kind(line.name);
    CompleteOptimizer(&config);
    const auto options = MakeOptimizerOptions(config);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->kind, line.kind);
    EXPECT_EQ(options->beta1, OptimizerOptions().beta1);
    EXPECT_EQ(options->beta2, OptimizerOptions().beta2);
    EXPECT_EQ(options->trust_coefficient, OptimizerOptions().trust_coefficient);
    if (line.Uses("epsilon")) {
      EXPECT_EQ(options->epsilon, static_cast<float>(line.default_epsilon));
    }
  }
  EXPECT_EQ(OptimizerOptions().beta1, 0.9f);
  EXPECT_EQ(OptimizerOptions().beta2, 0.999f);
  EXPECT_EQ(OptimizerOptions().trust_coefficient, 0.001f);
}

// In range as doubles; the optimizers would compute with 1, 0 and infinity.
TEST(OptimizerConfigTest, ValuesAreJudgedAsTheFloatsThatTheyBecome) {
  const auto message = [](const std::string& kind, const std::string& field,
                          double value) {
    v1::OptimizerConfig config;
    config.set_kind(kind);
    CompleteOptimizer(&config);
    config.GetReflection()->SetDouble(
        &config, v1::OptimizerConfig::descriptor()->FindFieldByName(field),
        value);
    return std::string(MakeOptimizerOptions(config).status().message());
  };
  EXPECT_THAT(message("adam", "beta2", 0.99999999),
              HasSubstr("optimizer.beta2"));
  EXPECT_THAT(message("adam", "epsilon", 1e-46),
              HasSubstr("optimizer.epsilon"));
  EXPECT_THAT(message("adagrad", "initial_accumulator", 1e39),
              HasSubstr("optimizer.initial_accumulator"));
  EXPECT_EQ(message("adam", "beta2", 0.9999), "");
}

TEST(OptimizerConfigTest, AnUnknownNameGetsTheListOfAllOptimizers) {
  v1::OptimizerConfig config;
  config.set_kind("adamax");
  const auto options = MakeOptimizerOptions(config);
  ASSERT_FALSE(options.ok());
  for (const OptimizerLine& line : kOptimizers) {
    EXPECT_THAT(std::string(options.status().message()),
                HasSubstr('"' + std::string(line.name) + '"'));
  }
}

}  // namespace
}  // namespace agg
