// Selects standard output or error of local ranks, as --redirects and --tee do. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

enum class Stream { kOutput, kError };

// "stdout" or "stderr".
const char* name_of(Stream stream);

struct Streams {
  bool out = false;
  bool err = false;
  bool has(Stream stream) const { return stream == Stream::kOutput ? out : err; }
};

class StreamSelection {
 public:
  // Parses torchrun's notation: 0 nothing, 1 standard output, 2 standard error, 3 both, for all ranks; or for some of
  // them, as in "0:3,11:1". Nothing when `text` is invalid.
  static std::optional<StreamSelection> parse(std::string_view text);

  Streams of_rank(int local_rank) const;
  bool is_empty() const;
  // Returns the selection in that notation.
  std::string text() const;
  // The highest local rank that is named; -1 if no rank is named.
  int highest_rank() const { return by_rank_.empty() ? -1 : by_rank_.rbegin()->first; }

 private:
  Streams default_;
  std::map<int, Streams> by_rank_;
};

// "0,3,11" -> the numbers; nothing when `text` is not a list of numbers from 0.
std::optional<std::vector<int>> parse_rank_list(std::string_view text);

// "a,b,,c" -> "a" and "b,c": a doubled comma is a comma of the text, as in torchrun. Empty texts are left out.
std::vector<std::string> parse_text_list(std::string_view text);

}  // namespace launcher
