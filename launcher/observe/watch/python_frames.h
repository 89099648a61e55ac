// The Python functions that the threads of a CPython process are in, read from its memory: the program needs no
// handler, is not stopped, and may hold the interpreter's lock. Pure but for `read`.
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
  std::string file{};  // as Python names it
  int line = 0;        // 0: not known

  // "load (train.py:12)"
  std::string text() const;
  // The file is of Python's own library or of an installed package.
  bool is_library() const;
};

// Copies bytes of the process; false where they cannot be read.
using ReadMemory = std::function<bool(std::uint64_t address, void* to, std::size_t bytes)>;

// By the number of the thread, innermost first. `runtime` is the address of _PyRuntime, `minor` the 11 of Python 3.11;
// 3.10 to 3.13 are known, others give nothing. 3.10 does not tell which thread is whose: there the main thread alone
// has frames, as `main`. The process may run meanwhile, so nothing that is read is believed that could lead astray.
std::map<std::int64_t, std::vector<PythonFrame>> python_frames(const ReadMemory& read, std::uint64_t runtime, int minor,
                                                               std::int64_t main);

// Where a Python program is.
struct PythonPlace {
  // What of torch.distributed it is in, such as "all_reduce"; "backward" in a backward pass; "" elsewhere.
  std::string call{};
  // The program's own innermost line: "load (train.py:12)".
  std::string line{};

  bool is_same(const PythonPlace& other) const { return call == other.call && line == other.line; }
};
PythonPlace place_of(const std::vector<PythonFrame>& frames);

// Of a location table of Python 3.11 or later (PEP 657), or a line table of 3.10: the line of the instruction at
// `offset` bytes; 0 where it says none.
int line_in(std::string_view table, int minor, int first_line, std::int64_t offset);

}  // namespace launcher
