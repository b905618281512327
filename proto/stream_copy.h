// Copies of memory that nobody reads soon.
#ifndef AGG_PROTO_STREAM_COPY_H_
#define AGG_PROTO_STREAM_COPY_H_

#include <cstddef>

namespace agg {

// Size from which on what is copied would push other data out of the caches,
// and be gone itself before it is read.
inline constexpr size_t kStreamBytes = size_t{1} << 20;

// Copies as memcpy does. Writes past the caches where the machine can: this
// saves reading the destination first, a third of a copy's memory traffic.
// Another thread sees the bytes as after memcpy.
void StreamCopy(char* to, const char* from, size_t num_bytes);

// Copies by StreamCopy if there are kStreamBytes or more, else by memcpy.
void CopyBytes(char* to, const char* from, size_t num_bytes);

}  // namespace agg

#endif  // AGG_PROTO_STREAM_COPY_H_
