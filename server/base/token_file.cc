// The file is read as a whole at each look: it is small, and times of change
// are too coarse to tell two versions of it apart.
#include "server/base/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/file_descriptor.h"
#include "server/base/log.h"

namespace agg {
namespace {

absl::Status LineError(int line, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", line, " ", what, "; allowed: ", kMinTokenBytes,
                   " to ", kMaxTokenBytes, " visible ASCII characters"));
}

absl::Status SystemError() {
  return absl::Status(CodeOfRefusedFile(errno), std::strerror(errno));
}

absl::StatusOr<std::string> ReadSystemFile(const std::string& path) {
  // A pipe in its place must not hold up who looks.
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about;
  if (!file.valid() || fstat(file.get(), &about) != 0) return SystemError();
  if (!S_ISREG(about.st_mode)) {
    return absl::UnavailableError("it is not a regular file");
  }
  std::string bytes(kMaxTokenFileBytes + 1, '\0');
  size_t length = 0;
  while (length < bytes.size()) {
    const ssize_t count =
        read(file.get(), &bytes[length], bytes.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError();
    if (count == 0) break;
    length += static_cast<size_t>(count);
  }
  bytes.resize(length);
  return bytes;
}

void WarnAboutReaders(const std::string& path) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0) return;
  if (!OthersMayRead(about.st_mode, about.st_uid == geteuid())) return;
  LogWarning("the tokens in ", path,
             " can be read by others than its owner: chmod 600 it");
}

}  // namespace

bool OthersMayRead(unsigned mode, bool own) {
  unsigned others = S_IROTH | S_IWOTH | S_IWGRP;
  if (own) others |= S_IRGRP;
  return (mode & others) != 0;
}

absl::StatusOr<std::vector<std::string>> ParseTokens(absl::string_view text) {
  if (text.size() > kMaxTokenFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it is too long; allowed: at most ", kMaxTokenFileBytes, " bytes"));
  }
  std::vector<std::string> tokens;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    if (line.size() < kMinTokenBytes) return LineError(number, "is too short");
    if (line.size() > kMaxTokenBytes) return LineError(number, "is too long");
    if (!std::all_of(line.begin(), line.end(), absl::ascii_isgraph)) {
      return LineError(number, "has a character that no token may have");
    }
    tokens.emplace_back(line);
  }
  return tokens;
}

bool SameToken(absl::string_view a, absl::string_view b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  // volatile: no compiler may end the loop at the first difference.
  volatile unsigned char differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    differs = static_cast<unsigned char>(
        differs | (static_cast<unsigned char>(a[i]) ^
                   static_cast<unsigned char>(b[i % b.size()])));
  }
  return differs == 0;
}

TokenFile::Reader TokenFile::SystemReader() { return ReadSystemFile; }

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(
    const std::string& path, const Clock* clock, Reader read,
    std::shared_ptr<LimitedCalls> calls) {
  if (read == nullptr) {
    read = ReadSystemFile;
    WarnAboutReaders(path);
  }
  if (calls == nullptr) calls = std::make_shared<LimitedCalls>(LookLimits());
  auto file = absl::WrapUnique(
      new TokenFile(path, clock, std::move(read), std::move(calls)));
  absl::StatusOr<std::vector<std::string>> tokens = file->Read(kAtStart);
  if (tokens.ok() && tokens->empty()) {
    tokens = absl::InvalidArgumentError("it has no token");
  }
  if (!tokens.ok()) {
    return absl::Status(
        tokens.status().code(),
        absl::StrCat("\"", path, "\": ", tokens.status().message()));
  }
  MutexLock lock(&file->mutex_);
  file->tokens_ =
      std::make_shared<const std::vector<std::string>>(*std::move(tokens));
  file->looked_at_ = clock->Now();
  return file;
}

absl::StatusOr<std::vector<std::string>> TokenFile::Read(LookKind kind) {
  using Bytes = absl::StatusOr<std::string>;
  const Bytes bytes = calls_->Get<Bytes>(
      kind, "read it", [read = read_, path = path_] { return read(path); });
  if (!bytes.ok()) return bytes.status();
  return ParseTokens(*bytes);
}

TokenFile::Tokens TokenFile::tokens() {
  const absl::Time now = clock_->Now();
  {
    MutexLock lock(&mutex_);
    if (looking_ || now - looked_at_ < kLook) return tokens_;
    looking_ = true;
  }
  // Without the lock: a disk that hangs holds up one call, for a while, and not
  // all.
  const absl::StatusOr<std::vector<std::string>> read = Read(kAgain);
  MutexLock lock(&mutex_);
  Take(read);
  looked_at_ = now;
  looking_ = false;
  return tokens_;
}

void TokenFile::Take(const absl::StatusOr<std::vector<std::string>>& read) {
  if (!read.ok()) {
    const std::string error(read.status().message());
    if (std::exchange(logged_, error) != error) {
      LogWarning("the tokens in ", path_, " stay as they were: ", error);
    }
    return;
  }
  logged_.clear();
  if (*read == *tokens_) return;
  LogInfo("the tokens in ", path_, " have changed: ", read->size(),
          " are valid");
  tokens_ = std::make_shared<const std::vector<std::string>>(*read);
}

std::string TokenFile::first() {
  const Tokens now = tokens();
  return now->empty() ? std::string() : now->front();
}

}  // namespace agg
