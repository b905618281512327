// The tokens of a PTX file.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_TOKENS_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_TOKENS_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace agg::ptx {

struct Token {
  absl::string_view text;  // of the file's; empty: its end
  int line = 0;            // from 1 on
};

// Words (letters, digits and "_$%."), strings with their quotes, and single
// other characters; without comments, and without the lines .loc and .file. The
// last token is the end.
std::vector<Token> Tokenize(absl::string_view text);

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_TOKENS_H_
