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

// The functions of a 64-bit ELF file's bytes in which the bytes at these offsets of the file lie, by their symbols,
// which are read once; without those of which the file does not say it, and without any where it is damaged. Pure.
std::map<std::uint64_t, std::string> functions_at(std::string_view file, const std::set<std::uint64_t>& offsets);

struct MappedFile {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // in the file, of `begin`
  std::string path{};
};
// The executable ones in the text of /proc/<pid>/maps. Pure.
std::vector<MappedFile> executable_files(std::string_view maps);

// Where the variable `name` of a 64-bit ELF file's bytes is in a process that has mapped the file so. Pure.
std::optional<std::uint64_t> variable_in(std::string_view file, std::string_view name, const MappedFile& mapped);
// The same of the file at `path`, which is `mapped`'s as this process sees it.
std::optional<std::uint64_t> variable_at(const std::string& path, std::string_view name, const MappedFile& mapped);

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
  // Looks up what frames() will be asked for, process and addresses, with one look at each file: it may have half a
  // million symbols, and a few hundred places of it are wanted.
  void learn(const std::vector<std::pair<int, std::vector<std::uint64_t>>>& stacks);
  // `addresses` are return addresses in the process, but for the first, innermost one. At most 32 are named.
  std::vector<StackFrame> frames(int pid, const std::vector<std::uint64_t>& addresses);

 private:
  using Place = std::pair<std::string, std::uint64_t>;  // a file and an offset in it
  std::optional<Place> place_of(int pid, const std::vector<std::uint64_t>& addresses, std::size_t i);

  std::map<int, std::vector<MappedFile>> files_;  // by process
  std::map<Place, std::string> functions_;
};

}  // namespace launcher
