// Recognizes options of other launchers on ddprun's command line.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace launcher {

struct ForeignUse {
  std::size_t taken = 0;             // the number of arguments that it consists of
  std::vector<std::string> words{};  // ddprun's options that replace it
  std::string ignored{};             // why it is ignored, "" where that needs no word
};

// `arguments` begin with the option to examine. `is_own` returns whether ddprun itself has "--name" or "-x"; such a
// name is examined only if the table has a row for this value. Returns nothing if no launcher has such an option.
// Throws UsageError for an option that ddprun cannot replace. Pure.
std::optional<ForeignUse> foreign_use(std::span<const std::string> arguments,
                                      const std::function<bool(const std::string& dashed)>& is_own);

bool is_whole_number(std::string_view text);

// One line for each reason: "-mca pml ob1 and -mca btl self are ignored: ...".
class IgnoredOptions {
 public:
  void add(std::span<const std::string> words, const std::string& reason);
  std::vector<std::string> lines() const;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons_;  // in the order of their first option
};

}  // namespace launcher
