// The names of functions in a program's or library's file, for stacks of other processes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace launcher {

// Returns the functions that contain these offsets of a 64-bit ELF file, from its symbols, which are read once. Offsets
// without a known function are missing; a damaged file gives none. Pure.
std::map<std::uint64_t, std::string> functions_at(std::string_view file, const std::set<std::uint64_t>& offsets);

struct MappedFile {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // in the file, of `begin`
  std::string path{};
};
// Returns the executable files in the text of /proc/<pid>/maps. Pure.
std::vector<MappedFile> executable_files(std::string_view maps);

// Returns the address of the variable `name` of a 64-bit ELF file in a process that has mapped the file as `mapped`.
// Pure.
std::optional<std::uint64_t> variable_in(std::string_view file, std::string_view name, const MappedFile& mapped);
// The same for the file at `path`, which is the path of `mapped` as this process sees it.
std::optional<std::uint64_t> variable_at(const std::string& path, std::string_view name, const MappedFile& mapped);

// A place in a program or library.
struct StackFrame {
  std::string function{};    // empty: not known
  std::string file{};        // without its folder; empty: the address belongs to no file
  std::uint64_t offset = 0;  // in the file, or the address

  // "train_step(Net&, Batch const&) (train+0x1234)"
  std::string text() const;
};

// Names the frames of processes of this user. Each place is looked up once.
class SymbolNames {
 public:
  // `proc`: the folder with the entries of the processes; "" if they cannot be read: then all functions are unknown.
  explicit SymbolNames(std::string proc = "/proc") : proc_(std::move(proc)) {}

  // Looks up the processes and addresses for which frames() will be called, in one pass over each file: a file may have
  // half a million symbols, and only a few hundred places are needed.
  void resolve(const std::vector<std::pair<int, std::vector<std::uint64_t>>>& stacks);
  // `addresses` are return addresses in the process, except for the first, innermost one. At most 32 are named.
  std::vector<StackFrame> frames(int pid, const std::vector<std::uint64_t>& addresses);

 private:
  using Place = std::pair<std::string, std::uint64_t>;  // a file and an offset in it
  std::optional<Place> place_of(int pid, const std::vector<std::uint64_t>& addresses, std::size_t i);

  const std::string proc_;
  std::map<int, std::vector<MappedFile>> files_;  // by process
  std::map<Place, std::string> functions_;
};

}  // namespace launcher
