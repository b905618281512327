#include "tests/property/row_families.h"

#include <cmath>

#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using Engine = std::mt19937_64;
using Shape = std::function<void(uint64_t, Engine*, Rows*)>;

double Uniform(Engine* engine, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(*engine);
}

// rows <- shared + noise * rows
void AddShared(double noise, uint64_t seed, Rows* rows) {
  const auto num_elements = (*rows)[0].size();
  const Rows shared =
      NormalRows(seed + 7777, 1, static_cast<int>(num_elements));
  for (std::vector<double>& row : *rows) {
    for (size_t k = 0; k < num_elements; ++k) {
      row[k] = shared[0][k] + noise * row[k];
    }
  }
}

// Odd rows become the opposite of the one before, plus noise.
Shape Opposite(double noise) {
  return [noise](uint64_t, Engine*, Rows* rows) {
    for (size_t i = 1; i < rows->size(); i += 2) {
      for (size_t k = 0; k < (*rows)[i].size(); ++k) {
        (*rows)[i][k] = noise * (*rows)[i][k] - (*rows)[i - 1][k];
      }
    }
  };
}

Shape Correlated(double noise) {
  return [noise](uint64_t seed, Engine*, Rows* rows) {
    AddShared(noise, seed, rows);
  };
}

Shape Scaled(double low, double high, double noise) {
  return [=](uint64_t seed, Engine* engine, Rows* rows) {
    if (noise >= 0.0) AddShared(noise, seed, rows);
    for (std::vector<double>& row : *rows) {
      ScaleRow(std::pow(10.0, Uniform(engine, low, high)), &row);
    }
  };
}

Shape AlternatingLengths(double first, double second) {
  return [=](uint64_t, Engine*, Rows* rows) {
    for (size_t i = 0; i < rows->size(); ++i) {
      ScaleRow(i % 2 == 0 ? first : second, &(*rows)[i]);
    }
  };
}

Shape ZeroRows() {
  return [](uint64_t, Engine* engine, Rows* rows) {
    for (std::vector<double>& row : *rows) {
      if (Uniform(engine, 0, 1) < 0.5) ScaleRow(0.0, &row);
    }
  };
}

Shape Sparse() {
  return [](uint64_t, Engine* engine, Rows* rows) {
    for (std::vector<double>& row : *rows) {
      for (double& value : row) {
        if (Uniform(engine, 0, 1) < 0.95) value = 0.0;
      }
    }
  };
}

}  // namespace

const std::vector<RowFamily>& RowFamilies() {
  static const auto& families = *new std::vector<RowFamily>{
      {"random", [](uint64_t, Engine*, Rows*) {}},
      {"correlated", Correlated(1.0)},
      {"near parallel", Correlated(1e-3)},
      {"parallel with lengths", Scaled(-6, 6, 0.0)},
      {"lengths", Scaled(-15, 15, -1.0)},
      {"times 1e30", Scaled(30, 30, -1.0)},
      {"times 1e-30", Scaled(-30, -30, -1.0)},
      {"1e30 and 1e-30", AlternatingLengths(1e30, 1e-30)},
      {"opposite", Opposite(0.0)},
      {"opposite + 1e-2", Opposite(1e-2)},
      {"opposite + 1e-4", Opposite(1e-4)},
      {"opposite + 3e-5", Opposite(3e-5)},  // kappa is just below its limit
      {"opposite + 1e-6", Opposite(1e-6)},
      {"zero rows", ZeroRows()},
      {"sparse", Sparse()},
  };
  return families;
}

Rows FamilyRows(const RowFamily& family, int num_rows, int num_elements) {
  const uint64_t seed = 1000 + static_cast<uint64_t>(num_rows);
  Engine engine(seed);
  Rows rows = NormalRows(seed, num_rows, num_elements);
  family.shape(seed, &engine, &rows);
  RoundRows(&rows);
  return rows;
}

void RoundRows(Rows* rows) {
  for (std::vector<double>& row : *rows) {
    for (double& value : row) value = static_cast<float>(value);
  }
}

void ScaleRow(double scale, std::vector<double>* row) {
  for (double& value : *row) value *= scale;
}

}  // namespace agg
