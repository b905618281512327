// Whole lines of 64 bytes go past the caches; what is before and behind them is
// copied as ever, since half a line would be written twice.
#include "proto/stream_copy.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace agg {
namespace {

constexpr size_t kLine = 64;

#ifdef __SSE2__
void StreamLines(char* to, const char* from, size_t num_lines) {
  for (; num_lines > 0; --num_lines, to += kLine, from += kLine) {
    // All reads of a line come first, so that its writes fill one buffer.
    const auto* const source = reinterpret_cast<const __m128i*>(from);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    auto* const destination = reinterpret_cast<__m128i*>(to);
    _mm_stream_si128(destination, a);
    _mm_stream_si128(destination + 1, b);
    _mm_stream_si128(destination + 2, c);
    _mm_stream_si128(destination + 3, d);
  }
  _mm_sfence();
}
#else
void StreamLines(char* to, const char* from, size_t num_lines) {
  std::memcpy(to, from, num_lines * kLine);
}
#endif

}  // namespace

void StreamCopy(char* to, const char* from, size_t num_bytes) {
  const size_t head = std::min(
      num_bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  const size_t num_lines = (num_bytes - head) / kLine;
  StreamLines(to + head, from + head, num_lines);
  const size_t done = head + num_lines * kLine;
  std::memcpy(to + done, from + done, num_bytes - done);
}

void CopyBytes(char* to, const char* from, size_t num_bytes) {
  if (num_bytes < kStreamBytes) {
    std::memcpy(to, from, num_bytes);
  } else {
    StreamCopy(to, from, num_bytes);
  }
}

}  // namespace agg
