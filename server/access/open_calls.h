// The calls that are open, with what their callers have shown: who is asked at
// the beginning of a call is asked once more when credentials have changed.
#ifndef AGG_SERVER_ACCESS_OPEN_CALLS_H_
#define AGG_SERVER_ACCESS_OPEN_CALLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/access/identities.h"
#include "server/base/mutex.h"

namespace agg {

struct OpenCall {
  Credentials credentials;
  std::string from;
  std::string method;
  std::string identity;  // that it was admitted as
  // Ends it with a status; may come after its end, which changes nothing. Must
  // not call back.
  std::function<void(const absl::Status&)> end;
};

// Thread-safe.
class OpenCalls {
 public:
  // It is open until what is returned is destroyed, before this object.
  std::shared_ptr<void> Add(OpenCall call);
  // Ends those that `check` finds not to be OK, each once. No lock is held when
  // one is asked for or ended.
  void Recheck(const std::function<absl::Status(const OpenCall&)>& check);
  size_t size() const;

 private:
  mutable Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<const OpenCall>> open_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_OPEN_CALLS_H_
