#include "comm/core/backend_map.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/comm/sample_backends.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::kGloo;
using test::kLocal;
using test::kNccl;
using test::kSampleBackends;
using test::kShout;

struct Case {
  const char* text;
  BackendMap expected;
  const char* canonical;
};

TEST_CASE("BackendMap: reads torch distributeds syntax") {
  const std::vector<Case> cases = {
      {"gloo", {.cpu = &kGloo, .cuda = &kGloo}, "gloo"},
      {"local", {.cpu = &kLocal, .cuda = &kLocal}, "local"},
      {"nccl", {.cpu = nullptr, .cuda = &kNccl}, "nccl"},
      {"cpu:gloo,cuda:nccl", {.cpu = &kGloo, .cuda = &kNccl}, "cpu:gloo,cuda:nccl"},
      {"cuda:nccl,cpu:gloo", {.cpu = &kGloo, .cuda = &kNccl}, "cpu:gloo,cuda:nccl"},
      {"cpu:gloo,cuda:gloo", {.cpu = &kGloo, .cuda = &kGloo}, "gloo"},
      {"cpu:gloo", {.cpu = &kGloo, .cuda = nullptr}, "cpu:gloo"},
      {"cuda:gloo", {.cpu = nullptr, .cuda = &kGloo}, "cuda:gloo"},
      {"cuda:nccl", {.cpu = nullptr, .cuda = &kNccl}, "nccl"},
      {"shout", {.cpu = &kShout, .cuda = nullptr}, "shout"},
      {"cpu:shout", {.cpu = &kShout, .cuda = nullptr}, "shout"},
      {"cpu:shout,cuda:nccl", {.cpu = &kShout, .cuda = &kNccl}, "cpu:shout,cuda:nccl"},
  };
  for (const Case& c : cases) {
    const BackendMap map = parse_backend_map(c.text, kSampleBackends);
    UNSCOPED_INFO(c.text);
    CHECK(map == c.expected);
    CHECK(map.text() == c.canonical);
    INFO("text() is what the parser reads");
    CHECK(parse_backend_map(map.text(), kSampleBackends) == map);
  }
}

TEST_CASE("BackendMap: knows which of its backends has a trait") {
  const BackendMap both = parse_backend_map("cpu:gloo,cuda:nccl", kSampleBackends);
  CHECK(both.with(&BackendTraits::needs_cuda) == &kNccl);
  INFO("CUDA's comes first");
  CHECK(both.with(&BackendTraits::serves_cuda) == &kNccl);
  CHECK(both.with(&BackendTraits::serves_cpu) == &kGloo);
  CHECK(both.with(&BackendTraits::for_one_rank) == nullptr);
  CHECK(BackendMap{}.with(&BackendTraits::serves_cpu) == nullptr);
}

TEST_CASE("BackendMap: waits by default as long as the most patient of its backends") {
  const auto minutes_of = [](const char* text) {
    return std::chrono::duration_cast<std::chrono::minutes>(parse_backend_map(text, kSampleBackends).default_timeout());
  };
  CHECK(minutes_of("nccl").count() == 10);
  CHECK(minutes_of("cuda:nccl").count() == 10);
  CHECK(minutes_of("gloo").count() == 30);
  CHECK(minutes_of("cpu:gloo,cuda:nccl").count() == 30);
  CHECK(minutes_of("local").count() == 30);
}

TEST_CASE("BackendMap: refuses with the bad part and the choices") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "no backend is named"},
      {"mpi", "no ProcessGroupMPI inside"},
      {"NCCL", "'NCCL' is not a known backend"},
      {"gloo,nccl", "each backend follows its device, as in 'cuda:gloo'"},
      {"cpu:mpi", "no ProcessGroupMPI inside"},
      {"tpu:gloo", "device 'tpu' is neither cpu nor cuda"},
      {"cpu:nccl", "nccl supports CUDA tensors only"},
      {"cuda:shout", "shout supports CPU tensors only"},
      {"cpu:local", "local is for a single process"},
      {"shut", "'shut' is not a known backend. Use 'gloo', 'nccl', 'shout' or a list such as 'cpu:gloo,cuda:nccl'."},
      {"cpu:gloo,cpu:gloo", "device 'cpu' is named twice"},
      {"cpu:gloo,,cuda:nccl", "'' is not a known backend"},
      {"cpu:", "'' is not a known backend"},
      {"cpu:gloo cuda:nccl", "'gloo cuda:nccl' is not a known backend"},
  };
  for (const auto& [text, why] : cases) {
    std::string message = "no error";
    try {
      parse_backend_map(text, kSampleBackends);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
    CHECK_THAT(message, ContainsSubstring(std::string("backend '").append(text).append("': ")) &&
                            ContainsSubstring(why) && ContainsSubstring("cpu:gloo,cuda:nccl"));
  }
}

}  // namespace
}  // namespace ddp
