#include "launcher/observe/watch/python_frames.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "launcher/observe/watch/python_process.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Frames = std::vector<PythonFrame>;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

TEST_CASE("Python frames: a location table of 3.11 gives the line of each instruction") {
  // 3 instructions of line + 1 without columns; 1 without a line; 2 of line + 2, one line; 1 with all, line - 1.
  const std::string table = bytes({0x80 | 13 << 3 | 2, 2, 0x80 | 15 << 3, 0x80 | 12 << 3 | 1, 5, 9,  //
                                   0x80 | 14 << 3, 3, 0, 1, 1});
  for (const int minor : {11, 12, 13}) {
    CHECK(line_in(table, minor, 10, -2) == 11);
    CHECK(line_in(table, minor, 10, 0) == 11);
    CHECK(line_in(table, minor, 10, 4) == 11);
    CHECK(line_in(table, minor, 10, 6) == 0);
    CHECK(line_in(table, minor, 10, 8) == 13);
    CHECK(line_in(table, minor, 10, 10) == 13);
    CHECK(line_in(table, minor, 10, 12) == 12);
    CHECK(line_in(table, minor, 10, 14) == 0);
  }
}

TEST_CASE("Python frames: a line table of 3.10 gives the line of each instruction") {
  const std::string table = bytes({4, 1, 2, -128, 6, 2, 2, -3});
  CHECK(line_in(table, 10, 10, 2) == 11);
  CHECK(line_in(table, 10, 10, 4) == 0);
  CHECK(line_in(table, 10, 10, 10) == 13);
  CHECK(line_in(table, 10, 10, 12) == 10);
  CHECK(line_in(table, 10, 10, 14) == 0);
}

TEST_CASE("Python frames: what reads nothing gives nothing, and so does another version") {
  const ReadMemory nothing = [](std::uint64_t, void*, std::size_t) { return false; };
  for (int minor = 9; minor < 15; ++minor) CHECK(python_frames(nothing, 4096, minor, 7).empty());
}

TEST_CASE("Python frames: a list of frames or threads that leads to itself ends") {
  // Each word is the address of all words.
  const ReadMemory loop = [](std::uint64_t, void* to, std::size_t size) {
    const std::uint64_t word = 4096;
    for (std::size_t i = 0; i < size; ++i)
      std::memcpy(static_cast<char*>(to) + i, reinterpret_cast<const char*>(&word) + i % 8, 1);
    return true;
  };
  for (const int minor : {10, 11, 12}) {
    for (const auto& [thread, frames] : python_frames(loop, 4096, minor, 7)) CHECK(frames.size() <= 128);
  }
}

TEST_CASE("Python frames: the version is in the name of the program or the library") {
  CHECK(python_minor("libpython3.11.so.1.0") == 11);
  CHECK(python_minor("python3.9") == 9);
  CHECK(python_minor("python3.13t") == 13);
  CHECK(python_minor("python3") == 0);
  CHECK(python_minor("libtorch_python.so") == 0);
}

TEST_CASE("Python frames: the folders of an installation are left out of the text") {
  CHECK(PythonFrame{"wait", "/usr/lib/python3.11/threading.py", 320}.text() == "wait (threading.py:320)");
  CHECK(PythonFrame{"f", "/v/lib/python3.11/site-packages/torch/x.py", 1}.text() == "f (torch/x.py:1)");
  CHECK(PythonFrame{"f", "train.py", 0}.text() == "f (train.py)");
  CHECK(PythonFrame{"f", "/usr/lib/python3.11/threading.py"}.is_library());
  CHECK(PythonFrame{"f", "<frozen importlib._bootstrap>"}.is_library());
  CHECK_FALSE(PythonFrame{"f", "/data/train.py"}.is_library());
}

TEST_CASE("Python frames: a program is where its own innermost line is, and in what torch.distributed does for it") {
  const std::string packages = "/v/lib/python3.11/site-packages/";
  const PythonFrame own{"main", "/data/train.py", 20};
  const PythonFrame c10d{"all_reduce", packages + "torch/distributed/distributed_c10d.py", 4000};
  const PythonFrame logger{"_exception_logger.<locals>.wrapper", packages + "torch/distributed/c10d_logger.py", 83};
  CHECK(place_of({c10d, logger, own}).call == "all_reduce");
  CHECK(place_of({c10d, logger, own}).line == "main (/data/train.py:20)");
  // The outermost call is the program's.
  CHECK(place_of({c10d, logger, {"barrier_of", packages + "torch/distributed/utils.py", 5}, own}).call == "barrier_of");
  CHECK(place_of({{"_engine_run_backward", packages + "torch/autograd/graph.py", 9}, own}).call == "backward");
  // A function of the program's that a backward calls.
  CHECK(place_of({{"load", "/data/train.py", 3}, c10d, own}).call.empty());
  CHECK(place_of({{"wait", "/usr/lib/python3.11/threading.py", 3}, own}).call.empty());
  CHECK(place_of({}).line.empty());
}

}  // namespace
}  // namespace launcher
