// What an identity may do, in five words.
#ifndef AGG_SERVER_ACCESS_ROLE_H_
#define AGG_SERVER_ACCESS_ROLE_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace agg {

enum class Role : uint8_t {
  kWorker,    // takes part in rounds
  kObserver,  // reads the model and the job's state
  kAdmin,     // changes the job while it runs
  kShard,     // is a part of the job itself
  kMetrics    // reads metrics, and nothing else
};

// A set of roles.
class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= Bit(role);
  }
  constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  constexpr bool Meets(Roles other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr void Add(Role role) { bits_ |= Bit(role); }
  // "worker or observer"; "" of none.
  std::string Text(absl::string_view word) const;

  friend constexpr bool operator==(Roles a, Roles b) {
    return a.bits_ == b.bits_;
  }

 private:
  static constexpr uint8_t Bit(Role role) {
    return static_cast<uint8_t>(1 << static_cast<int>(role));
  }
  uint8_t bits_ = 0;
};

inline constexpr char kAllowedRoles[] =
    "\"worker\", \"observer\", \"admin\", \"shard\", \"metrics\"";

// The name that configurations use; nothing for a name that is none.
absl::string_view RoleName(Role role);
std::optional<Role> ParseRole(absl::string_view name);

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_ROLE_H_
