// How a process writes its log: at once, or by a thread that nobody waits for.
#ifndef AGG_SERVER_BASE_LOG_WRITER_H_
#define AGG_SERVER_BASE_LOG_WRITER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace agg {

// Makes LogLine queue its lines until the process's end; a thread writes them
// to stderr (LineWriter). So a reader that is slow, or does not read, holds
// nobody up, but costs lines. Process-wide, for programs that serve others.
// Before this call, and where no thread can be had, lines are written at once.
void StartLogWriter();
// Writes a line as it is, with its newline, behind those of the log.
void WriteToStderr(absl::string_view line);
// Waits until all lines are written, for `limit` at most; whether they are. To
// be called before the process ends.
bool FlushLog(absl::Duration limit);
// Writes all lines from a signal's handler, as LineWriter::FlushAtCrash does.
void FlushLogAtCrash();
// Number of lines so far that were dropped, since nobody read them.
uint64_t DroppedLogLines();

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOG_WRITER_H_
