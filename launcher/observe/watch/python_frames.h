// The Python functions in which the threads of a CPython process are, read from its memory. The program needs no
// handler and is not stopped, and another thread may hold the interpreter's lock. Pure except for `read`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

struct PythonFrame {
  std::string function{};
  std::string file{};  // as Python has it
  int line = 0;        // 0: not known

  // "load (train.py:12)"
  std::string text() const;
  // True if the file belongs to Python's own library or to an installed package.
  bool is_library() const;
};

// Copies bytes of the process; returns false when they cannot be read.
using ReadMemory = std::function<bool(std::uint64_t address, void* to, std::size_t bytes)>;

// Returns the frames by thread number, innermost first. `runtime` is the address of _PyRuntime, `minor` is the 11 of
// Python 3.11. Versions 3.10 to 3.13 are known; others give no frames. 3.10 does not store thread numbers, so it gives
// only the frames of the main thread, as `main`. The process may run during the call, so everything that is read is
// checked.
std::map<std::int64_t, std::vector<PythonFrame>> python_frames(const ReadMemory& read, std::uint64_t runtime, int minor,
                                                               std::int64_t main);

// The position of a Python program.
struct PythonPlace {
  // The function of torch.distributed in which it is, such as "all_reduce"; "backward" in a backward pass; ""
  // elsewhere.
  std::string call{};
  // The innermost line of the program itself: "load (train.py:12)".
  std::string line{};

  bool is_same(const PythonPlace& other) const { return call == other.call && line == other.line; }
};
PythonPlace place_of(const std::vector<PythonFrame>& frames);

// Returns the line of the instruction at `offset` bytes, from a location table of Python 3.11 or later (PEP 657) or a
// line table of 3.10; 0 if the table has none.
int line_in(std::string_view table, int minor, int first_line, std::int64_t offset);

}  // namespace launcher
