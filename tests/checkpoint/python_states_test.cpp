// The states of scaler, sampler and schedule as text: what Python reads and writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <limits>
#include <string>

#include "amp/grad_scaler.h"
#include "checkpoint/python_state.h"
#include "checkpoint/state_ref.h"
#include "optim/lr_scheduler.h"
#include "optim/reduce_lr_on_plateau.h"
#include "samplers/distributed_sampler.h"
#include "tests/checkpoint/temporary_folder.h"

namespace ddp {
namespace {

using test::message_of;
using ::testing::HasSubstr;

template <typename Object>
std::string archive_of(const Object& object) {
  return detail::save_archive([&](auto& archive) { object.save(archive); });
}

TEST(ScalerState, IsJsonUnderPythonsNamesAndArchivesAreStillRead) {
  const GradScaler scaler({.init_scale = 0.1, .growth_interval = 7, .device = c10::kCPU});
  EXPECT_EQ(scaler.save(),
            R"({"_growth_tracker":0,"backoff_factor":0.5,"growth_factor":2.0,"growth_interval":7,"scale":0.1})");
  for (const auto& text : {scaler.save(), archive_of(scaler)}) {
    GradScaler other({.device = c10::kCPU});
    other.load(text);
    EXPECT_EQ(other.save(), scaler.save());
  }
  EXPECT_EQ(GradScaler({.enabled = false, .device = c10::kCPU}).save(), "{}");
}

TEST(ScalerState, OtherTextIsRefusedAndChangesNothing) {
  GradScaler scaler({.device = c10::kCPU});
  const auto before = scaler.save();
  for (const std::string text :
       {"", "{", "[]", "7", "{}", R"({"scale":1})",
        R"({"_growth_tracker":-1,"backoff_factor":0.5,"growth_factor":2.0,"growth_interval":7,"scale":0.1})",
        R"({"_growth_tracker":0,"backoff_factor":0.5,"growth_factor":2.0,"growth_interval":7,"scale":1e999})"}) {
    EXPECT_THROW(scaler.load(text), std::runtime_error) << text;
    EXPECT_EQ(scaler.save(), before);
  }
}

TEST(SamplerText, IsJsonAndArchivesAreStillRead) {
  DistributedSampler sampler(10, {.seed = std::numeric_limits<uint64_t>::max()});
  sampler.set_epoch(3);
  sampler.reset();
  sampler.next(4);
  EXPECT_EQ(sampler.save(), R"({"consumed":4,"epoch":3,"length":10,"seed":18446744073709551615})");
  for (const auto& text : {sampler.save(), archive_of(sampler)}) {
    DistributedSampler other(10);
    other.load(text);
    EXPECT_EQ(other.save(), sampler.save());
  }
  const auto before = sampler.save();
  for (const std::string text : {"", "{}", R"({"consumed":4,"epoch":3,"length":11,"seed":0})",
                                 R"({"consumed":0.5,"epoch":3,"length":10,"seed":0})"}) {
    EXPECT_THROW(sampler.load(text), std::invalid_argument) << text;
    EXPECT_EQ(sampler.save(), before);
  }
}

class ScheduleText : public ::testing::Test {
 protected:
  torch::nn::Linear net{2, 2};
  torch::optim::SGD optimizer{net->parameters(), torch::optim::SGDOptions(0.5)};
};

TEST_F(ScheduleText, PythonsStateSetsRatesAndCounts) {
  optim::LrScheduler scheduler(optimizer, schedules::step({.step_size = 3}), {.interval = 2});
  scheduler.load(
      R"({"step_size":3,"gamma":0.1,"base_lrs":[0.5],"last_epoch":2,"_step_count":3,"_is_initial":false,"_last_lr":[0.25]})");
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  scheduler.step();
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25) << "two steps of the program are one of the schedule";
  scheduler.step();
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[0].options().get_lr(), 0.025);
}

TEST_F(ScheduleText, AStateOfAnotherScheduleOrOptimizerIsRefused) {
  optim::LrScheduler scheduler(optimizer, schedules::exponential({.gamma = 0.5}));
  const auto before = scheduler.save();
  const std::string counts = R"("last_epoch":2,"_step_count":3)";
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {R"({"step_size":3,"gamma":0.1,"base_lrs":[0.5],"_last_lr":[0.25],)" + counts + "}", "is of StepLR"},
           {R"({"lr_lambdas":[null],"base_lrs":[0.5],"_last_lr":[0.25],)" + counts + "}", "is of LambdaLR"},
           {R"({"base_lrs":[0.5],"_last_lr":[0.25],)" + counts + "}", "an unknown schedule"},
           {R"({"gamma":0.1,"base_lrs":[0.5,1],"_last_lr":[0.25,1],)" + counts + "}", "another number"},
           {R"({"gamma":0.1,"base_lrs":[0.5],"_last_lr":[],)" + counts + "}", "1 initial and 0 last"},
           {R"({"gamma":0.1,"base_lrs":[0.5],"_last_lr":[0.25],"last_epoch":-2,"_step_count":3})", "-2 steps"},
           {"{}", "no state of a learning-rate schedule"}}) {
    EXPECT_THAT(message_of([&] { scheduler.load(text); }), HasSubstr(reason)) << text;
    EXPECT_EQ(scheduler.save(), before);
  }
}

TEST_F(ScheduleText, BecomesWhatPythonsClassTakes) {
  optim::LrScheduler scheduler(optimizer, schedules::lambda([](int64_t) { return 0.5; }));
  EXPECT_EQ(python_schedule(scheduler.save()),
            R"({"_last_lr":[0.25],"_step_count":1,"base_lrs":[0.5],"last_epoch":0,"lr_lambdas":[null]})");
  EXPECT_EQ(with_schedule(R"({"param_groups":[{"lr":0.25}],"type":"SGD"})", scheduler.save()),
            R"({"param_groups":[{"initial_lr":0.5,"lr":0.25}],"type":"SGD"})");
  optim::ReduceLROnPlateau plateau(optimizer);
  EXPECT_EQ(python_schedule(plateau.save()), R"({"cooldown_counter":0,"last_epoch":0,"num_bad_epochs":0})");
}

}  // namespace
}  // namespace ddp
