#include "tests/kernels/cuda/ptx/parser.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/kernels/cuda/ptx/module.h"
#include "tests/kernels/cuda/ptx/tokens.h"

namespace agg::ptx {
namespace {

// Bytes of a fundamental type; 0: it is none.
int64_t TypeBytes(absl::string_view type) {
  if (absl::EndsWith(type, "64")) return 8;
  if (absl::EndsWith(type, "32")) return 4;
  if (absl::EndsWith(type, "16")) return 2;
  return type == ".b8" || type == ".u8" || type == ".s8" ? 1 : 0;
}

// 12, 0x1f, 12U, 0f3F800000 and 0d3FF0000000000000.
bool ParseNumber(absl::string_view text, uint64_t* bits) {
  if (absl::StartsWith(text, "0f") || absl::StartsWith(text, "0d") ||
      absl::StartsWith(text, "0x")) {
    return absl::SimpleHexAtoi(text.substr(2), bits);
  }
  if (absl::EndsWith(text, "U")) text.remove_suffix(1);
  return absl::SimpleAtoi(text, bits);
}

// A descent over the tokens. The first error stays, and ends everything.
class Parser {
 public:
  explicit Parser(absl::string_view text) : tokens_(Tokenize(text)) {}

  absl::StatusOr<Module> Run() {
    while (status_.ok() && !Peek().empty()) ParseDirective();
    if (!status_.ok()) return status_;
    return std::move(module_);
  }

 private:
  using Registers = std::map<std::string, int>;

  absl::string_view Peek() const { return tokens_[at_].text; }

  absl::string_view Take() {
    const absl::string_view text = Peek();
    if (!text.empty()) ++at_;
    return text;
  }

  bool TakeIf(absl::string_view text) {
    if (Peek() != text) return false;
    Take();
    return true;
  }

  void Fail(absl::string_view what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "PTX line ", tokens_[at_].line, ": ", what, " at '", Peek(), "'"));
  }

  void Expect(absl::string_view text) {
    if (!TakeIf(text)) Fail(absl::StrCat("expected '", text, "'"));
  }

  int64_t TakeInteger() {
    uint64_t bits = 0;
    if (!ParseNumber(Peek(), &bits)) Fail("expected a number");
    Take();
    return static_cast<int64_t>(bits);
  }

  void SkipPast(absl::string_view end) {
    while (!Peek().empty() && Peek() != end) Take();
    Expect(end);
  }

  // --- Directives ---

  void ParseDirective() {
    const absl::string_view directive = Peek();
    if (TakeIf(".version") || TakeIf(".address_size") || TakeIf(".visible") ||
        TakeIf(".weak")) {
      if (directive == ".version" || directive == ".address_size") Take();
    } else if (TakeIf(".target")) {
      if (!absl::SimpleAtoi(Take().substr(3), &module_.target)) {
        Fail("expected sm_NN");
      }
    } else if (TakeIf(".section")) {
      SkipPast("{");
      SkipPast("}");
    } else if (TakeIf(".shared")) {
      module_.shared.push_back(ParseVariable());
      Expect(";");
    } else if (TakeIf(".entry")) {
      ParseEntry();
    } else {
      Fail("unknown directive");
    }
  }

  // .align 8 .b8 name[24], or .u64 name
  Variable ParseVariable() {
    Variable variable;
    if (TakeIf(".align")) variable.alignment = TakeInteger();
    const int64_t element_bytes = TypeBytes(Take());
    if (element_bytes == 0) Fail("unknown type before");
    if (variable.alignment < element_bytes) variable.alignment = element_bytes;
    variable.name = std::string(Take());
    variable.num_bytes = element_bytes;
    if (TakeIf("[")) {
      variable.num_bytes *= TakeInteger();
      Expect("]");
    }
    return variable;
  }

  void ParseEntry() {
    Entry entry;
    entry.line = tokens_[at_].line;
    entry.name = std::string(Take());
    Expect("(");
    while (status_.ok() && !TakeIf(")")) {
      Expect(".param");
      entry.parameters.push_back(ParseVariable());
      TakeIf(",");
    }
    while (status_.ok() && !TakeIf("{")) ParseLimit(&entry);
    scopes_.assign(1, Registers());
    ParseBody(&entry);
    if (status_.ok()) module_.entries[entry.name] = std::move(entry);
  }

  void ParseLimit(Entry* entry) {
    if (TakeIf(".maxntid")) {
      entry->max_threads = TakeInteger();
      while (TakeIf(",")) entry->max_threads *= TakeInteger();
    } else if (TakeIf(".minnctapersm")) {
      TakeInteger();
    } else {
      Fail("unknown directive");
    }
  }

  // --- Bodies ---

  // Up to the entry's last brace; braces within hide registers' names.
  void ParseBody(Entry* entry) {
    while (status_.ok() && !scopes_.empty()) {
      if (TakeIf("}")) {
        scopes_.pop_back();
      } else if (TakeIf("{")) {
        scopes_.emplace_back();
      } else if (TakeIf(".reg")) {
        ParseRegisters(entry);
      } else if (TakeIf(".pragma")) {
        SkipPast(";");
      } else if (tokens_[at_ + 1].text == ":") {
        const auto index = static_cast<int>(entry->statements.size());
        entry->labels[std::string(Take())] = index;
        Take();
      } else if (absl::StartsWith(Peek(), ".") || Peek().empty()) {
        Fail("unknown directive");
      } else {
        entry->statements.push_back(ParseStatement());
      }
    }
  }

  // .b32 %r<41>; or .b32 a, b;
  void ParseRegisters(Entry* entry) {
    Take();  // the type: instructions say theirs
    do {
      const std::string name(Take());
      if (TakeIf("<")) {
        const int64_t count = TakeInteger();
        for (int64_t i = 0; i < count; ++i) {
          scopes_.back()[absl::StrCat(name, i)] = entry->num_registers++;
        }
        Expect(">");
      } else {
        scopes_.back()[name] = entry->num_registers++;
      }
    } while (TakeIf(","));
    Expect(";");
  }

  int FindRegister(absl::string_view name) const {
    const std::string key(name);
    for (size_t i = scopes_.size(); i-- > 0;) {
      const auto found = scopes_[i].find(key);
      if (found != scopes_[i].end()) return found->second;
    }
    return -1;
  }

  Statement ParseStatement() {
    Statement statement;
    statement.line = tokens_[at_].line;
    if (TakeIf("@")) {
      statement.guard_negated = TakeIf("!");
      statement.guard = FindRegister(Take());
      if (statement.guard < 0) Fail("unknown guard before");
    }
    statement.opcode = std::string(Take());
    if (TakeIf(";")) return statement;
    do {
      statement.operands.push_back(ParseOperand());
    } while (status_.ok() && TakeIf(","));
    Expect(";");
    return statement;
  }

  Operand ParseOperand() {
    if (TakeIf("{")) return ParseVector("}", ",");
    if (TakeIf("[")) return ParseAddress();
    Operand first = ParseAtom();
    if (!TakeIf("|")) return first;
    Operand pair;
    pair.kind = Operand::kVector;
    pair.parts = {std::move(first), ParseAtom()};
    return pair;
  }

  Operand ParseVector(absl::string_view end, absl::string_view separator) {
    Operand vector;
    vector.kind = Operand::kVector;
    do {
      vector.parts.push_back(ParseAtom());
    } while (status_.ok() && TakeIf(separator));
    Expect(end);
    return vector;
  }

  Operand ParseAddress() {
    Operand address;
    address.kind = Operand::kAddress;
    address.parts.push_back(ParseAtom());
    if (TakeIf("+")) {
      const bool negative = TakeIf("-");
      address.offset = negative ? -TakeInteger() : TakeInteger();
    }
    Expect("]");
    return address;
  }

  Operand ParseAtom() {
    Operand atom;
    const bool negative = TakeIf("-");
    const absl::string_view text = Peek();
    if (ParseNumber(text, &atom.bits)) {
      if (negative) atom.bits = -atom.bits;
    } else if (const int index = FindRegister(text); index >= 0) {
      atom.kind = Operand::kRegister;
      atom.index = index;
    } else {
      atom.kind = text == "_"                   ? Operand::kSink
                  : absl::StartsWith(text, "%") ? Operand::kSpecial
                                                : Operand::kSymbol;
      atom.name = std::string(text);
    }
    if (text.empty()) Fail("the text ends");
    Take();
    return atom;
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  absl::Status status_;
  Module module_;
  std::vector<Registers> scopes_;  // of the entry, outermost first
};

}  // namespace

absl::StatusOr<Module> Parse(absl::string_view text) {
  return Parser(text).Run();
}

}  // namespace agg::ptx
