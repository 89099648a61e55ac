// The names of functions in a program's or library's file, for stacks of other processes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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

// One line per frame: "#0 train_step(Net&, Batch const&) (train+0x1234)". `frames` are addresses in the process, which
// must be one of this user's.
std::string stack_text(int pid, const std::vector<std::uint64_t>& frames);

}  // namespace launcher
