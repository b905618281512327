#include "tests/server/base/sim_disk.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace agg {
namespace {

absl::Status NotThere(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, " is not there"));
}

absl::Status WrongKind(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is of another kind, or not empty"));
}

// Whether a change since the last sync has reached the disk.
bool Keeps(SimDisk::Kept kept, const std::string& name) {
  int sum = 0;
  for (const char c : name) sum += static_cast<unsigned char>(c);
  switch (kept) {
    case SimDisk::Kept::kSynced:
      return false;
    case SimDisk::Kept::kAll:
      return true;
    case SimDisk::Kept::kSome:
      return sum % 2 == 0;
    case SimDisk::Kept::kOthers:
      return sum % 2 == 1;
  }
  return false;
}

}  // namespace

// A file or a folder: as it is, and as it was when it was last synced.
struct SimDisk::Node {
  bool is_folder = false;
  std::string data;
  std::string synced_data;
  // After a failed Sync the system takes the data for written: later Syncs
  // succeed and write nothing.
  bool forgets = false;
  Names names;
  Names synced_names;
};

class SimWritableFile : public WritableFile {
 public:
  SimWritableFile(SimDisk* disk, std::shared_ptr<SimDisk::Node> node)
      : disk_(disk), node_(std::move(node)) {}

  absl::Status Append(absl::string_view bytes) override {
    const SimDisk::Turn turn = disk_->NextTurn();
    if (turn.half) bytes = bytes.substr(0, bytes.size() / 2);
    if (turn.act || turn.half) node_->data.append(bytes.data(), bytes.size());
    return turn.status;
  }

  absl::Status Sync() override {
    const SimDisk::Turn turn = disk_->NextTurn();
    if (turn.act && !node_->forgets) node_->synced_data = node_->data;
    if (!turn.act) node_->forgets = true;
    return turn.status;
  }

  absl::Status Close() override { return disk_->NextTurn().status; }

 private:
  SimDisk* const disk_;
  const std::shared_ptr<SimDisk::Node> node_;
};

class SimReadableFile : public ReadableFile {
 public:
  SimReadableFile(SimDisk* disk, std::shared_ptr<SimDisk::Node> node)
      : disk_(disk),
        node_(std::move(node)),
        num_bytes_(static_cast<int64_t>(node_->data.size())) {}

  int64_t num_bytes() const override { return num_bytes_; }

  absl::Status Read(int64_t offset, absl::Span<char> bytes) override {
    const SimDisk::Turn turn = disk_->NextTurn();
    if (!turn.status.ok()) return turn.status;
    const auto begin = static_cast<size_t>(offset);
    if (begin + bytes.size() > node_->data.size()) {
      return absl::DataLossError("the file ends before");
    }
    std::memcpy(bytes.data(), node_->data.data() + begin, bytes.size());
    return absl::OkStatus();
  }

 private:
  SimDisk* const disk_;
  const std::shared_ptr<SimDisk::Node> node_;
  const int64_t num_bytes_;
};

SimDisk::SimDisk() : root_(std::make_shared<Node>()) {
  root_->is_folder = true;
}

SimDisk::~SimDisk() = default;

void SimDisk::FailAt(int64_t number, Fault fault, absl::Status error) {
  fault_at_ = number;
  fault_ = fault;
  error_ = std::move(error);
}

SimDisk::Turn SimDisk::NextTurn() {
  const int64_t number = num_operations_++;
  Turn turn;
  const bool dead = fault_ == Fault::kDie && number > fault_at_;
  if (fault_ == Fault::kNone || (number != fault_at_ && !dead)) return turn;
  turn.status = error_;
  turn.act = fault_ == Fault::kFailAfter;
  turn.half = !dead && (fault_ == Fault::kShort || fault_ == Fault::kDie);
  return turn;
}

std::shared_ptr<SimDisk::Node> SimDisk::Find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (const absl::string_view name :
       absl::StrSplit(path, '/', absl::SkipEmpty())) {
    const auto found = node->names.find(std::string(name));
    if (found == node->names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

absl::StatusOr<std::shared_ptr<SimDisk::Node>> SimDisk::Parent(
    const std::string& path, std::string* name) const {
  const size_t slash = path.rfind('/');
  std::shared_ptr<Node> parent = Find(path.substr(0, slash));
  if (parent == nullptr || !parent->is_folder) return NotThere(path);
  *name = path.substr(slash + 1);
  return parent;
}

absl::StatusOr<std::unique_ptr<WritableFile>> SimDisk::Create(
    const std::string& path) {
  const Turn turn = NextTurn();
  std::string name;
  const absl::StatusOr<std::shared_ptr<Node>> parent = Parent(path, &name);
  if (!parent.ok()) return parent.status();
  std::shared_ptr<Node> node = Find(path);
  if (node != nullptr && node->is_folder) return WrongKind(path);
  if (turn.act) {
    if (node == nullptr) node = std::make_shared<Node>();
    node->data.clear();
    (*parent)->names[name] = node;
  }
  if (!turn.status.ok()) return turn.status;
  return std::make_unique<SimWritableFile>(this, node);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> SimDisk::Open(
    const std::string& path) {
  const Turn turn = NextTurn();
  if (!turn.status.ok()) return turn.status;
  std::shared_ptr<Node> node = Find(path);
  if (node == nullptr) return NotThere(path);
  if (node->is_folder) return WrongKind(path);
  return std::make_unique<SimReadableFile>(this, std::move(node));
}

absl::Status SimDisk::CreateFolder(const std::string& path) {
  const Turn turn = NextTurn();
  std::string name;
  const absl::StatusOr<std::shared_ptr<Node>> parent = Parent(path, &name);
  if (!parent.ok()) return parent.status();
  const std::shared_ptr<Node> there = Find(path);
  if (there != nullptr && !there->is_folder) return WrongKind(path);
  if (turn.act && there == nullptr) {
    std::shared_ptr<Node> node = std::make_shared<Node>();
    node->is_folder = true;
    (*parent)->names[name] = std::move(node);
  }
  return turn.status;
}

absl::Status SimDisk::Rename(const std::string& from, const std::string& to) {
  const Turn turn = NextTurn();
  std::string from_name;
  std::string to_name;
  const absl::StatusOr<std::shared_ptr<Node>> source = Parent(from, &from_name);
  const absl::StatusOr<std::shared_ptr<Node>> target = Parent(to, &to_name);
  if (!source.ok()) return source.status();
  if (!target.ok()) return target.status();
  std::shared_ptr<Node> node = Find(from);
  if (node == nullptr) return NotThere(from);
  if (turn.act) {
    (*source)->names.erase(from_name);
    (*target)->names[to_name] = std::move(node);
  }
  return turn.status;
}

absl::Status SimDisk::SyncFolder(const std::string& path) {
  const Turn turn = NextTurn();
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr || !node->is_folder) return NotThere(path);
  if (turn.act) node->synced_names = node->names;
  return turn.status;
}

absl::StatusOr<std::vector<std::string>> SimDisk::List(
    const std::string& path) {
  const Turn turn = NextTurn();
  if (!turn.status.ok()) return turn.status;
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr || !node->is_folder) return NotThere(path);
  std::vector<std::string> names;
  for (const auto& entry : node->names) names.push_back(entry.first);
  return names;
}

absl::Status SimDisk::Remove(const std::string& path) {
  const Turn turn = NextTurn();
  std::string name;
  const absl::StatusOr<std::shared_ptr<Node>> parent = Parent(path, &name);
  if (!parent.ok()) return parent.status();
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr) return NotThere(path);
  if (!node->names.empty()) return WrongKind(path);
  if (turn.act) (*parent)->names.erase(name);
  return turn.status;
}

std::shared_ptr<SimDisk::Node> SimDisk::Survivor(const std::string& name,
                                                 const Node& node, Kept names,
                                                 Kept data) {
  std::shared_ptr<Node> copy = std::make_shared<Node>();
  copy->is_folder = node.is_folder;
  copy->data = Keeps(data, name) ? node.data : node.synced_data;
  copy->synced_data = copy->data;
  // A name is there, or points where it does, as it was synced or as it is now.
  Names kept;
  for (const auto& entry : node.synced_names) {
    if (!Keeps(names, entry.first)) kept.insert(entry);
  }
  for (const auto& entry : node.names) {
    if (Keeps(names, entry.first)) kept.insert(entry);
  }
  for (const auto& entry : kept) {
    copy->names[entry.first] =
        Survivor(entry.first, *entry.second, names, data);
  }
  copy->synced_names = copy->names;
  return copy;
}

void SimDisk::LosePower(Kept names, Kept data) {
  root_ = Survivor("", *root_, names, data);
  Recover();
}

void SimDisk::FlipBit(const std::string& path, int64_t bit) {
  Find(path)->data[bit / 8] ^= static_cast<char>(1 << (bit % 8));
}

void SimDisk::Cut(const std::string& path, int64_t num_bytes) {
  Find(path)->data.resize(static_cast<size_t>(num_bytes));
}

std::string SimDisk::Bytes(const std::string& path) const {
  return Find(path)->data;
}

}  // namespace agg
