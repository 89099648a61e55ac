#include "base/symbol_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

namespace ddp::detail {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Parses a symbol of the Itanium C++ ABI just far enough to get its name. Types are not shown; they are skipped by
// counting opening and closing codes.
class Outline {
 public:
  explicit Outline(std::string_view text) : text_(text) {}

  std::string read() {
    std::string name = encoding();
    return is_valid_ ? name : std::string();
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  std::string fail() {
    is_valid_ = false;
    at_ = text_.size();
    return "";
  }

  std::string encoding() {
    const Deeper deeper(*this);
    if (depth_ > kMaxDepth) return fail();
    std::string name = this->name();
    return name + "(...)";
  }

  std::string name() {
    if (take("N")) return nested();
    if (take("Z")) return local();
    std::string name = take("St") ? "std::" : "";
    name += part("");
    if (peek() == 'I') name += arguments();
    return name;
  }

  // Parses the name of a function and of an entity declared inside that function.
  std::string local() {
    std::string name = encoding();
    skip_to_end();
    if (take("s")) {
      skip_number();
      return name + "::string literal";
    }
    if (take("d")) skip_number();
    return name + "::" + this->name();
  }

  std::string nested() {
    while (take("r") || take("V") || take("K") || take("R") || take("O")) {
    }
    std::string name;
    std::string last;
    while (is_valid_ && !take("E")) {
      if (peek() == 'I') {
        name += arguments();
        continue;
      }
      last = part(last);
      if (!last.empty()) name += (name.empty() ? "" : "::") + last;
    }
    return name;
  }

  // Parses one part of a name: an identifier, an operator or a lambda. `before` is the name of the class, for
  // constructors and destructors.
  std::string part(const std::string& before) {
    std::string name;
    const char c = peek();
    if (is_digit(c)) {
      name = identifier();
      if (name.starts_with("_GLOBAL__N_")) name = "(anonymous namespace)";
    } else if (c == 'S') {
      name = substitution();
    } else if (c == 'L') {
      ++at_;  // skip the mark of internal linkage
      return part(before);
    } else if ((c == 'C' || c == 'D') && is_digit(peek(1))) {
      at_ += 2;
      name = (c == 'D' ? "~" : "") + before;
    } else if (c == 'C' && peek(1) == 'I') {
      at_ += 3;
      skip_type();
      name = before;
    } else if (take("Ul")) {
      skip_to_end();
      skip_number();
      name = "{lambda}";
    } else if (take("Ut")) {
      skip_number();
      name = "{unnamed}";
    } else if (take("cv")) {
      skip_type();
      name = "operator cast";
    } else if (c == 'T' || (c == 'D' && (peek(1) == 't' || peek(1) == 'T'))) {
      skip_type();
      name = "...";
    } else if (std::islower(static_cast<unsigned char>(c)) != 0) {
      at_ += 2;
      name = "operator";
    } else {
      return fail();
    }
    while (take("B")) identifier();  // skip ABI tags
    return name;
  }

  std::string identifier() {
    std::size_t length = 0;
    while (is_digit(peek()) && length < text_.size())
      length = 10 * length + static_cast<std::size_t>(text_[at_++] - '0');
    if (length == 0 || length > text_.size() - at_) return fail();
    at_ += length;
    return std::string(text_.substr(at_ - length, length));
  }

  // Parses a reference to an earlier part of the symbol, or the abbreviation of a name in the standard library.
  std::string substitution() {
    ++at_;
    switch (const char c = peek(); c) {
      case 't':
        ++at_;
        return "std";
      case 'a':
      case 'b':
      case 's':
      case 'i':
      case 'o':
      case 'd':
        ++at_;
        return c == 'a' ? "std::allocator" : c == 's' || c == 'b' ? "std::string" : "std::stream";
      default:
        skip_number();
        return "...";
    }
  }

  // Skips "_", or digits and capital letters followed by "_".
  void skip_number() {
    while (is_digit(peek()) || std::isupper(static_cast<unsigned char>(peek())) != 0) ++at_;
    take("_");
  }

  std::string arguments() {
    ++at_;
    skip_to_end();
    return "<...>";
  }

  // Skips types, values and expressions up to the E that closes the current level.
  void skip_to_end(bool is_expression = false) {
    const Deeper deeper(*this);
    if (depth_ > kMaxDepth) fail();
    while (is_valid_ && !take("E")) {
      if (at_ >= text_.size()) {
        fail();
      } else if (is_expression && is_operator()) {
        at_ += 2;
      } else {
        skip_type();
      }
    }
  }

  // Recognizes the operators whose second letter would otherwise be parsed as an opening or closing code.
  bool is_operator() const {
    constexpr std::string_view kOperatorCodes = "aNaSdVeOeqlSlemImLmloRoopLplmirMrSrslsgeanntcostszstadnwcldtptsrcv";
    for (std::size_t i = 0; i + 1 < kOperatorCodes.size(); i += 2) {
      if (kOperatorCodes[i] == peek() && kOperatorCodes[i + 1] == peek(1)) return true;
    }
    return false;
  }

  // Skips one token of a type, including the levels that it opens.
  void skip_type() {
    const char c = peek();
    if (is_digit(c)) {
      identifier();
    } else if (c == 'S') {
      substitution();
    } else if (c == 'T') {
      ++at_;
      skip_number();
    } else if (!skip_opening(c)) {
      at_ += c == 'D' || c == 'A' ? 2 : 1;
      if (c == 'A') skip_number();
    }
  }

  // Returns false if no level opens at this position.
  bool skip_opening(char c) {
    if (take("L_Z")) {
      encoding();
      skip_to_end();
    } else if (take("Ul")) {
      skip_to_end();
      skip_number();
    } else if (take("Ut")) {
      skip_number();
    } else if (take("DO") || take("Dw") || take("DT") || take("Dt") || take("X")) {
      skip_to_end(/*is_expression=*/true);
    } else if (take("L")) {
      skip_literal();
    } else if (take("Z")) {
      encoding();
      skip_to_end();
      if (peek() == 'N' || is_digit(peek())) skip_type();
    } else if (c == 'N' || c == 'I' || c == 'J' || c == 'F') {
      ++at_;
      skip_to_end();
    } else {
      return false;
    }
    return true;
  }

  void skip_literal() {
    skip_type();
    while (is_valid_ && !take("E")) {
      if (at_++ >= text_.size()) fail();
    }
  }

  struct Deeper {
    explicit Deeper(Outline& outline) : depth(outline.depth_) { ++depth; }
    ~Deeper() { --depth; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    int& depth;
  };
  static constexpr int kMaxDepth = 200;

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool is_valid_ = true;
};

constexpr std::string_view kMangled = "_Z";
constexpr std::string_view kOmitted = "...";

// Replaces each outermost `open`...`close` range by `instead`. Returns the text unchanged if the brackets do not match.
std::string without(std::string_view name, char open, char close, std::string_view instead) {
  constexpr std::string_view kAnonymousNamespace = "(anonymous namespace)";
  std::string text;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (depth == 0 && name.substr(i).starts_with(kAnonymousNamespace)) {
      text += kAnonymousNamespace;
      i += kAnonymousNamespace.size() - 1;
      continue;
    }
    // The characters '<' and '>' in operator<, operator<<, operator->, a->b are not brackets.
    const bool is_sign = open == '<' && (text.ends_with("operator") || text.ends_with("operator<") ||
                                         text.ends_with("operator>") || (i > 0 && name[i - 1] == '-'));
    if (c == open && !(depth == 0 && is_sign)) {
      if (depth++ == 0) text += instead;
    } else if (c == close && depth > 0 && !(open == '<' && name[i - 1] == '-')) {
      --depth;
    } else if (depth == 0) {
      text += c;
    }
  }
  return depth == 0 ? text : std::string(name);
}

}  // namespace

std::string outline_of_symbol(std::string_view symbol) {
  constexpr std::string_view kMangled = "_Z";
  if (!symbol.starts_with(kMangled)) return "";
  return Outline(symbol.substr(kMangled.size())).read();
}

std::string shortened_name(std::string_view name, std::size_t most) {
  std::string text(name);
  if (text.size() > most) text = without(text, '<', '>', "<...>");
  if (text.size() > most) text = without(text, '(', ')', "(...)");
  if (text.size() <= most) return text;
  return text.substr(0, most - std::min(most, kOmitted.size())).append(kOmitted);
}

std::string symbol_name(std::string_view symbol, std::size_t most) {
  const std::string plain(symbol.substr(0, symbol.find('@')));
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      plain.starts_with(kMangled) ? abi::__cxa_demangle(plain.c_str(), nullptr, nullptr, &status) : nullptr, std::free);
  if (status == 0 && readable) return shortened_name(readable.get(), most);
  const std::string outline = outline_of_symbol(plain);
  return shortened_name(outline.empty() ? plain : outline, most);
}

}  // namespace ddp::detail
