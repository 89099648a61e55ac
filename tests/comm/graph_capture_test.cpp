// Whether a CUDA graph is being captured is asked of whoever knows; what the host would wait for is refused meanwhile.
#include "comm/core/graph_capture.h"

#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

bool captures() {
  return true;
}
bool captures_not() {
  return false;
}

// Each thread has a stream of its own.
thread_local bool this_thread_captures = false;
bool asks_the_thread() {
  return this_thread_captures;
}

// Puts back what was there, as nothing is captured in the rest of this program.
class GraphCapture {
 protected:
  ~GraphCapture() { set_capture_probe(before_); }
  const CaptureProbe before_ = set_capture_probe(nullptr);
};

TEST_CASE_METHOD(GraphCapture, "GraphCapture: nothing is captured where nobody knows of CUDA") {
  CHECK_FALSE(is_capturing());
  CHECK_NOTHROW(refuse_capture("all_gather_strings", "the host reads them"));
}

TEST_CASE_METHOD(GraphCapture, "GraphCapture: the probe answers, and gives way to the next one") {
  CHECK(set_capture_probe(captures) == nullptr);
  CHECK(is_capturing());
  CHECK(set_capture_probe(captures_not) == captures);
  CHECK_FALSE(is_capturing());
  CHECK(set_capture_probe(nullptr) == captures_not);
  CHECK_FALSE(is_capturing());
}

TEST_CASE_METHOD(GraphCapture, "GraphCapture: a refusal says what cannot be captured, and why") {
  set_capture_probe(captures);
  CHECK_THROWS_MATCHES(
      refuse_capture("rank 1 of 2: barrier", "the host waits in it"), std::runtime_error,
      Catch::Matchers::Message("rank 1 of 2: barrier cannot be captured in a CUDA graph: the host waits in it"));
  set_capture_probe(captures_not);
  CHECK_NOTHROW(refuse_capture("rank 1 of 2: barrier", "the host waits in it"));
}

TEST_CASE_METHOD(GraphCapture, "GraphCapture: it is the calling thread's stream that counts") {
  set_capture_probe(asks_the_thread);
  this_thread_captures = true;
  bool other = true;
  std::thread([&] { other = is_capturing(); }).join();
  CHECK(is_capturing());
  CHECK_FALSE(other);
  this_thread_captures = false;
  CHECK_FALSE(is_capturing());
}

}  // namespace
}  // namespace ddp::detail
