// The states of scaler, sampler and schedule as text: what Python reads and writes.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <limits>
#include <string>
#include <vector>

#include <ddprun/amp/grad_scaler.h>
#include <ddprun/checkpoint/training_state.h>
#include <ddprun/optim/lr_scheduler.h>
#include <ddprun/samplers/distributed_sampler.h>

#include "checkpoint/core/python_state.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinULP;
using test::error_of;

template <typename Object>
std::string archive_of(const Object& object) {
  return detail::save_archive([&](auto& archive) { object.save(archive); });
}

TEST_CASE("ScalerState: is JSON under Python's names and archives are still read") {
  const GradScaler scaler({.init_scale = 0.1, .growth_interval = 7, .device = c10::kCPU});
  CHECK(scaler.save() ==
        R"({"_growth_tracker":0,"backoff_factor":0.5,"growth_factor":2.0,"growth_interval":7,"scale":0.1})");
  for (const auto& text : {scaler.save(), archive_of(scaler)}) {
    GradScaler other({.device = c10::kCPU});
    other.load(text);
    CHECK(other.save() == scaler.save());
  }
  CHECK(GradScaler({.enabled = false, .device = c10::kCPU}).save() == "{}");
}

TEST_CASE("ScalerState: other text is refused and changes nothing") {
  GradScaler scaler({.device = c10::kCPU});
  const auto before = scaler.save();
  for (const std::string text :
       {"", "{", "[]", "7", "{}", R"({"scale":1})",
        R"({"_growth_tracker":-1,"backoff_factor":0.5,"growth_factor":2.0,"growth_interval":7,"scale":0.1})",
        R"({"_growth_tracker":0,"backoff_factor":0.5,"growth_factor":2.0,"growth_interval":7,"scale":1e999})"}) {
    UNSCOPED_INFO(text);
    CHECK_THROWS_AS(scaler.load(text), std::runtime_error);
    CHECK(scaler.save() == before);
  }
}

TEST_CASE("SamplerText: is JSON and archives are still read") {
  DistributedSampler sampler(10, {.seed = std::numeric_limits<uint64_t>::max()});
  sampler.set_epoch(3);
  sampler.reset();
  sampler.next(4);
  CHECK(sampler.save() == R"({"consumed":4,"epoch":3,"length":10,"seed":18446744073709551615})");
  for (const auto& text : {sampler.save(), archive_of(sampler)}) {
    DistributedSampler other(10);
    other.load(text);
    CHECK(other.save() == sampler.save());
  }
  const auto before = sampler.save();
  for (const std::string text : {"", "{}", R"({"consumed":4,"epoch":3,"length":11,"seed":0})",
                                 R"({"consumed":0.5,"epoch":3,"length":10,"seed":0})"}) {
    UNSCOPED_INFO(text);
    CHECK_THROWS_AS(sampler.load(text), std::invalid_argument);
    CHECK(sampler.save() == before);
  }
}

class ScheduleText {
 protected:
  torch::nn::Linear net{2, 2};
  torch::optim::SGD optimizer{net->parameters(), torch::optim::SGDOptions(0.5)};
};

TEST_CASE_METHOD(ScheduleText, "ScheduleText: Python's state sets rates and counts") {
  optim::LrScheduler scheduler(optimizer, schedules::step({.step_size = 3}), {.interval = 2});
  scheduler.load(
      R"({"step_size":3,"gamma":0.1,"base_lrs":[0.5],"last_epoch":2,"_step_count":3,"_is_initial":false,"_last_lr":[0.25]})");
  CHECK(optimizer.param_groups()[0].options().get_lr() == 0.25);
  scheduler.step();
  UNSCOPED_INFO("two steps of the program are one of the schedule");
  CHECK(optimizer.param_groups()[0].options().get_lr() == 0.25);
  scheduler.step();
  CHECK_THAT(optimizer.param_groups()[0].options().get_lr(), WithinULP(0.025, 4));
}

TEST_CASE_METHOD(ScheduleText, "ScheduleText: a state of another schedule or optimizer is refused") {
  optim::LrScheduler scheduler(optimizer, schedules::exponential({.gamma = 0.5}));
  const auto before = scheduler.save();
  const std::string counts = R"("last_epoch":2,"_step_count":3)";
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {R"({"step_size":3,"gamma":0.1,"base_lrs":[0.5],"_last_lr":[0.25],)" + counts + "}", "is of StepLR"},
           {R"({"lr_lambdas":[null],"base_lrs":[0.5],"_last_lr":[0.25],)" + counts + "}", "is of LambdaLR"},
           {R"({"base_lrs":[0.5],"_last_lr":[0.25],)" + counts + "}", "an unknown schedule"},
           {R"({"gamma":0.1,"base_lrs":[0.5,1],"_last_lr":[0.25,1],)" + counts + "}", "a different number"},
           {R"({"gamma":0.1,"base_lrs":[0.5],"_last_lr":[],)" + counts + "}", "1 initial and 0 last"},
           {R"({"gamma":0.1,"base_lrs":[0.5],"_last_lr":[0.25],"last_epoch":-2,"_step_count":3})", "number of steps, -2"},
           {"{}", "not a learning-rate schedule's state"}}) {
    UNSCOPED_INFO(text);
    CHECK_THROWS_WITH(scheduler.load(text), ContainsSubstring(reason));
    CHECK(scheduler.save() == before);
  }
}

TEST_CASE_METHOD(ScheduleText, "ScheduleText: becomes what Python's class takes") {
  optim::LrScheduler scheduler(optimizer, schedules::lambda([](int64_t) { return 0.5; }));
  CHECK(python_schedule(scheduler.save()) ==
        R"({"_last_lr":[0.25],"_step_count":1,"base_lrs":[0.5],"last_epoch":0,"lr_lambdas":[null],"type":"LambdaLR"})");
  CHECK(with_schedule(R"({"param_groups":[{"lr":0.25}],"type":"SGD"})", scheduler.save()) ==
        R"({"param_groups":[{"initial_lr":0.5,"lr":0.25}],"type":"SGD"})");
  optim::ReduceLROnPlateau plateau(optimizer);
  CHECK(python_schedule(plateau.save()) ==
        R"({"_last_lr":[0.25],"cooldown_counter":0,"last_epoch":0,"num_bad_epochs":0,"type":"ReduceLROnPlateau"})");
}

}  // namespace
}  // namespace ddp
