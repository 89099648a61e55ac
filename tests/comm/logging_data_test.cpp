// A wrapper's facts as a table for people: every fact has one line, in words.
#include <chrono>
#include <sstream>
#include <string>
#include <vector>

#include <ddprun/comm/logging_data.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;

// The rest of the line that begins with `name`; "no such line" without one.
std::string value_of(const DdpLoggingData& data, const std::string& name) {
  std::istringstream lines(data.table());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + " ")) continue;
    const size_t begin = line.find_first_not_of(' ', name.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "no such line";
}

TEST_CASE("LoggingData: the whole table") {
  const DdpLoggingData data{.module_name = "Net",
                            .backend = "gloo",
                            .comm_hook = "fp16_compress",
                            .rank = 1,
                            .world_size = 2,
                            .iteration = 12,
                            .parameter_tensors = 4,
                            .parameter_bytes = 332,
                            .bucket_cap_bytes = 26214400,
                            .bucket_bytes = {100, 232},
                            .has_rebuilt_buckets = true,
                            .find_unused_parameters = true,
                            .gradient_as_bucket_view = true,
                            .unused_parameters = {"a.weight", "b.bias"},
                            .last = {.forward = 1500us, .backward = 2ms, .communication = 1us, .overlap = 499ns},
                            .average = {.forward = 1s, .backward = 0ns, .communication = 12345678ns, .overlap = 1ns},
                            .error = "gone"};
  CHECK(data.table() ==
        "rank                      1 of 2\n"
        "module                    Net\n"
        "backend                   gloo\n"
        "communication hook        fp16_compress\n"
        "iteration                 12\n"
        "parameters                4 tensors, 332 bytes\n"
        "bucket cap                26214400 bytes\n"
        "buckets                   100, 232 bytes\n"
        "buckets rebuilt           yes\n"
        "buckets renewed           0\n"
        "find unused parameters    yes\n"
        "unused parameters         a.weight, b.bias\n"
        "static graph              no\n"
        "gradients in buckets      yes\n"
        "broadcast buffers         no\n"
        "times in ms                     last step        average\n"
        "  forward                           1.500       1000.000\n"
        "  backward                          2.000          0.000\n"
        "  communication                     0.001         12.346\n"
        "  both at once                      0.000          0.000\n"
        "error                     gone\n");
}

TEST_CASE("LoggingData: of a wrapper that has done nothing is a table, too") {
  const DdpLoggingData data;
  CHECK(value_of(data, "rank") == "0 of 1");
  CHECK(value_of(data, "communication hook") == "none (all-reduce)");
  CHECK(value_of(data, "unused parameters") == "none");
  CHECK(value_of(data, "iteration") == "0");
  CHECK(value_of(data, "error") == "no such line");
  CHECK(value_of(data, "buckets") == "none");
}

TEST_CASE("LoggingData: says that a bucket size is still being measured") {
  CHECK(value_of({.bucket_cap_bytes = 1024, .bucket_cap_settled = false}, "bucket cap") ==
        "1024 bytes (being measured)");
  CHECK(value_of({.bucket_cap_bytes = 1024}, "bucket cap") == "1024 bytes");
}

TEST_CASE("LoggingData: says that a static graph could be declared") {
  CHECK(value_of({.can_set_static_graph = true}, "static graph") == "no (could be set)");
  CHECK(value_of({.static_graph = true}, "static graph") == "yes");
}

TEST_CASE("LoggingData: every line ends, and none is wider than a terminal") {
  const std::string table = DdpLoggingData{.module_name = "Net"}.table();
  CHECK(table.back() == '\n');
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

}  // namespace
}  // namespace ddp
