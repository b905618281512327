// How a process writes its log: at once, or by a thread that nobody waits for.
#ifndef AGG_SERVER_BASE_LOG_WRITER_H_
#define AGG_SERVER_BASE_LOG_WRITER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace agg {

// From here on, until the process's end, LogLine queues its lines and a thread
// writes them to stderr (LineWriter): who reads slowly, or not at all, holds
// nobody up, and costs lines. Process-wide, for programs that serve others.
// Before it, and where no thread can be had, lines are written at once.
void StartLogWriter();
// A line as it is, with its newline, behind those of the log.
void WriteToStderr(absl::string_view line);
// Waits until all lines are written, for `limit` at most; whether they are. To
// be called before the process ends.
bool FlushLog(absl::Duration limit);
// The same from a signal's handler: as LineWriter::FlushAtCrash.
void FlushLogAtCrash();
// Lines that nobody has read, so far.
uint64_t DroppedLogLines();

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOG_WRITER_H_
