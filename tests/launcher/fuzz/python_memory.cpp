// The memory of a Python process, which may change or hold anything: at 4096 are the first byte's version, and the
// rest.
#include <cstring>

#include "launcher/observe/watch/python_frames.h"
#include "launcher/observe/watch/python_process.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> seeds;
  for (const char minor : {10, 11, 12, 13}) {
    std::string memory(4096, '\0');
    // Words that lead to each other: every eighth byte is the low byte of 4096 + 256 * k.
    for (std::size_t at = 0; at + 8 <= memory.size(); at += 8) {
      const std::uint64_t word = 4096 + at * 7 % 4096;
      std::memcpy(memory.data() + at, &word, 8);
    }
    if (minor == 13) {
      for (std::size_t at = 16; at < 71 * 8; at += 8) memory[at + 1] = 0;
      std::memcpy(memory.data(), "xdebugpy", 8);
      const std::uint64_t version = 0x030d00f0;
      std::memcpy(memory.data() + 8, &version, 8);
    }
    seeds.push_back(minor + memory);
  }
  return seeds;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  using namespace launcher;
  if (bytes.empty()) return Outcome::kRefused;
  const int minor = bytes.front();
  const std::string_view memory = bytes.substr(1);
  constexpr std::uint64_t kBegin = 4096;
  const ReadMemory read = [&](std::uint64_t address, void* to, std::size_t size) {
    if (address < kBegin || address - kBegin > memory.size() || size > memory.size() - (address - kBegin)) return false;
    std::memcpy(to, memory.data() + (address - kBegin), size);
    return true;
  };
  bool has_frames = false;
  for (const auto& [thread, frames] : python_frames(read, kBegin, minor, 1)) {
    require(frames.size() <= 128, "a stack has an end");
    for (const PythonFrame& frame : frames) require(frame.text().size() < 20'000, "texts are short");
    has_frames = has_frames || !frames.empty();
  }
  return has_frames ? Outcome::kAccepted : Outcome::kRefused;
}
