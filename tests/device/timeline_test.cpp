// What a device does, in the timeline: ranges by its own events, for which the host never waits.
#include <nlohmann/json.hpp>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ddprun/base/timeline.h>
#include <ddprun/comm/device_range.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>

#include "examples/models/lenet.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::IsEmpty;
using nlohmann::json;
namespace device = test::device;

constexpr int kRanks = 2;
constexpr int kSteps = 20;
constexpr int kWarmUp = 12;  // until the logger's own measuring ends

// Some steps on a device for each rank; the host's waits in those behind the warm-up.
std::vector<std::string> train() {
  std::vector<std::string> waits;
  std::barrier all(kRanks);  // of the host
  spawn(kRanks, [&](const GroupHandle& group) {
    models::LeNet net(10);
    net->to(group.device());
    DistributedDataParallel<models::LeNet> model(net, group, {.bucket_cap_bytes = 100'000});
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.01));
    const at::Tensor data = at::randn({2, 3, 32, 32}).to(group.device());
    const at::Tensor target = at::zeros({2}, at::kLong).to(group.device());
    for (int step = 0; step < kSteps; ++step) {
      if (step == kWarmUp) {
        all.arrive_and_wait();
        if (group.rank() == 0) device::forget_counts();
        all.arrive_and_wait();
      }
      optimizer.zero_grad();
      at::Tensor loss;
      {
        const timeline::DeviceRange range("loss", group.device());
        loss = torch::nn::functional::cross_entropy(model(data), target);
      }
      loss.backward();
      optimizer.step();
    }
    all.arrive_and_wait();
    if (group.rank() == 0) waits = device::counts().host_waits;
    all.arrive_and_wait();
    net->parameters().front().cpu();  // so that nothing is on its way when the model is destroyed
  });
  return waits;
}

// The slices of devices, by device.
std::map<std::string, std::vector<json>> device_slices(const std::string& file) {
  std::ifstream stream(file);
  const json trace = json::parse(stream);
  std::map<int64_t, std::string> lanes;
  std::map<std::string, std::vector<json>> slices;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      lanes[event.at("tid").get<int64_t>()] = event.at("args").at("name").get<std::string>();
    }
  }
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("cat") != "device") continue;
    slices[lanes.at(event.at("tid").get<int64_t>()).substr(0, 8)].push_back(event);
  }
  for (auto& [lane, of_device] : slices) {
    std::ranges::sort(of_device, {}, [](const json& slice) { return slice.at("ts").get<double>(); });
  }
  return slices;
}

std::vector<json> named(const std::vector<json>& slices, const std::string& name) {
  std::vector<json> found;
  for (const json& slice : slices) {
    if (slice.at("name") == name) found.push_back(slice);
  }
  return found;
}

double begin_of(const json& slice) {
  return slice.at("ts").get<double>();
}
double end_of(const json& slice) {
  return begin_of(slice) + slice.at("dur").get<double>();
}

// The first one: threads of autograd, which ask for their devices when they begin, are there after a backward, however
// late they come to that.
TEST_CASE("DeviceRange: without a timeline, and on the CPU, nothing is asked of a device") {
  device::drain();
  device::touched();
  { const timeline::DeviceRange range("nothing", device::device_at(1)); }
  { const timeline::DeviceRange range("nothing", c10::kCPU); }
  CHECK_THAT(device::touched(), IsEmpty());
  const test::TemporaryFolder folder;
  const Timeline recorded(folder / "trace.json");
  { const timeline::DeviceRange range("nothing", c10::kCPU); }
  CHECK_THAT(device::touched(), IsEmpty());
}

TEST_CASE(
    "DeviceRange: forward, backward, buckets, the optimizer and own ranges are in the device's lanes, without a wait") {
  device::faults();
  const test::TemporaryFolder folder;
  const std::string file = folder / "trace.json";
  {
    const Timeline recorded(file);
    CHECK_THAT(train(), IsEmpty());
  }
  CHECK_THAT(device::faults(), IsEmpty());
  const auto slices = device_slices(file);
  REQUIRE(slices.size() == kRanks);
  for (const auto& [lane, of_device] : slices) {
    INFO(lane);
    for (const char* name :
         {"loss", "forward", "backward", "wait for gradients", "bucket 0", "bucket 1", "optimizer"}) {
      INFO(name);
      const bool is_late = std::string(name) == "bucket 1";  // the first backward has one bucket
      CHECK(named(of_device, name).size() == kSteps - (is_late ? 1 : 0));
    }
    const auto forwards = named(of_device, "forward");
    const auto backwards = named(of_device, "backward");
    REQUIRE(forwards.size() == backwards.size());
    for (size_t step = 0; step < forwards.size(); ++step) {
      CHECK(begin_of(forwards[step]) <= end_of(forwards[step]));
      CHECK(begin_of(backwards[step]) <= end_of(backwards[step]));
      if (step > 0) CHECK(begin_of(forwards[step - 1]) <= begin_of(forwards[step]));
    }
    const auto waits = named(of_device, "wait for gradients");
    REQUIRE(waits.size() == backwards.size());
    for (size_t step = 0; step < waits.size(); ++step) {
      CHECK(begin_of(backwards[step]) <= begin_of(waits[step]));
      CHECK(begin_of(waits[step]) <= end_of(backwards[step]));
    }
    // Nothing in a lane lies over the edge of something else.
    for (const json& one : of_device) {
      for (const json& other : of_device) {
        const bool is_partial =
            begin_of(one) < begin_of(other) && begin_of(other) < end_of(one) && end_of(one) < end_of(other);
        CHECK_FALSE((one.at("tid") == other.at("tid") && is_partial));
      }
    }
  }
}

// As by `ddprun timeline start`, which comes at any moment.
TEST_CASE("DeviceRange: a recording that begins within a backward has a wait for gradients that ends") {
  const test::TemporaryFolder folder;
  const std::string file = folder / "trace.json";
  std::optional<Timeline> recorded;
  std::barrier all(kRanks);  // of the host
  spawn(kRanks, [&](const GroupHandle& group) {
    models::LeNet net(10);
    net->to(group.device());
    DistributedDataParallel<models::LeNet> model(net, group);
    const at::Tensor data = at::randn({2, 3, 32, 32}).to(group.device());
    int step = 0;
    // The first parameter's gradient is the last one.
    net->parameters().front().register_hook([&](const at::Tensor& /*gradient*/) {
      if (step != 1) return;
      if (group.rank() == 0) recorded.emplace(file);
      all.arrive_and_wait();
    });
    for (; step < 4; ++step) model(data).sum().backward();
    net->parameters().front().cpu();
  });
  recorded.reset();
  std::ifstream stream(file);
  const json trace = json::parse(stream);
  int waits = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("name") != "wait for gradients" || event.at("cat") != "wait") continue;
    ++waits;
    INFO(event.dump());
    CHECK_FALSE((event.contains("args") && event.at("args").contains("unfinished")));
  }
  CHECK(waits >= kRanks);
}

}  // namespace
}  // namespace ddp
