// The names of functions in a program's or library's file, for stacks of other processes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace launcher {

// The function of a 64-bit ELF file's bytes in which the byte at `offset` of the file lies, by its symbol; nothing
// where the file does not say or is damaged. Pure.
std::optional<std::string> function_at(std::string_view file, std::uint64_t offset);

struct MappedFile {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // in the file, of `begin`
  std::string path{};
};
// The executable ones in the text of /proc/<pid>/maps. Pure.
std::vector<MappedFile> executable_files(std::string_view maps);

// A place in a program or library.
struct StackFrame {
  std::string function{};    // empty: not known
  std::string file{};        // without its folder; empty: the address is in no file
  std::uint64_t offset = 0;  // in the file, or the address

  // "train_step(Net&, Batch const&) (train+0x1234)"
  std::string text() const;
};

// Names the frames of processes of this user; looks up each place once.
class SymbolNames {
 public:
  // `addresses` are return addresses in the process, but for the first, innermost one. At most 32 are named.
  std::vector<StackFrame> frames(int pid, const std::vector<std::uint64_t>& addresses);

 private:
  std::map<int, std::vector<MappedFile>> files_;                            // by process
  std::map<std::pair<std::string, std::uint64_t>, std::string> functions_;  // by file and offset
};

}  // namespace launcher
