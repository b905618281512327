#include "tests/golden/golden_json.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

namespace agg {

Json ReadGolden(const std::string& path) {
  std::ifstream file(path);
  Json value = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    std::fprintf(stderr, "%s cannot be read, or is not JSON\n", path.c_str());
    std::abort();
  }
  return value;
}

double GoldenNumber(const Json& value) {
  return value.is_string() ? std::stod(value.get<std::string>())
                           : value.get<double>();
}

}  // namespace agg
