#include "checkpoint/saved_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A group as Python's Adam and AdamW of 2.11 write it.
std::string adam(const char* weight_decay, const char* decoupled) {
  return std::string(R"({"type":"","param_groups":[{"params":["#0"],"lr":0.1,"betas":[0.9,0.999],"eps":1e-8,)") +
         R"("amsgrad":false,"maximize":false,"weight_decay":)" + weight_decay + decoupled + "}]}";
}

std::string objection(const std::string& text, std::string_view type) {
  return objection_to(parse_saved_optimizer(text), type);
}

TEST(SavedOptimizer, DecoupledWeightDecayIsForAdamWAloneUnlessItIsZero) {
  const auto adamw = adam("0.01", R"(,"decoupled_weight_decay":true)");
  EXPECT_THAT(objection(adamw, "AdamW"), IsEmpty());
  EXPECT_THAT(objection(adamw, "Adam"), HasSubstr("load it into AdamW"));
  const auto plain = adam("0.01", R"(,"decoupled_weight_decay":false)");
  EXPECT_THAT(objection(plain, "Adam"), IsEmpty());
  EXPECT_THAT(objection(plain, "AdamW"), HasSubstr("load it into Adam"));
  for (const auto* type : {"Adam", "AdamW"}) {
    EXPECT_THAT(objection(adam("0", R"(,"decoupled_weight_decay":true)"), type), IsEmpty());
    EXPECT_THAT(objection(adam("0.0", R"(,"decoupled_weight_decay":false)"), type), IsEmpty());
    EXPECT_THAT(objection(adam("0.01", ""), type), IsEmpty()) << "older files do not tell";
    EXPECT_THAT(objection(adam("0.01", R"(,"decoupled_weight_decay":1)"), type), HasSubstr("damaged"));
  }
}

TEST(SavedOptimizer, RelativesThatHaveOtherHyperParametersAreRefused) {
  const std::string radam =
      R"({"type":"","param_groups":[{"params":["#0"],"lr":0.1,"betas":[0.9,0.999],"eps":1e-8,"weight_decay":0}]})";
  EXPECT_THAT(objection(radam, "Adam"), HasSubstr("its hyper-parameters lack amsgrad"));
  const std::string sgd =
      R"({"type":"","param_groups":[{"params":["#0"],"lr":0.1,"momentum":0,"dampening":0,"nesterov":false}]})";
  EXPECT_THAT(objection(sgd, "SGD"), IsEmpty());
  EXPECT_THAT(objection(sgd, "Adam"), HasSubstr("lack betas, eps, amsgrad"));
  EXPECT_THAT(objection(sgd, "Adagrad"), HasSubstr("lack lr_decay, eps"));
  const std::string rmsprop =
      R"({"type":"","param_groups":[{"params":["#0"],"lr":0.1,"momentum":0.9,"alpha":0.99,"eps":1e-8}]})";
  EXPECT_THAT(objection(rmsprop, "SGD"), HasSubstr("lack dampening, nesterov"));
}

TEST(SavedOptimizer, ATypeThatTheFileNamesCounts) {
  const std::string text = R"({"type":"AdamW","param_groups":[]})";
  EXPECT_THAT(objection(text, "AdamW"), IsEmpty());
  EXPECT_EQ(objection(text, "Adam"), "it holds the state of 'AdamW', but the optimizer is Adam");
}

TEST(SavedOptimizer, TensorsOfAModuleCalledStateAreNotTheOptimizers) {
  const auto saved = parse_saved_optimizer(R"({"type":"SGD","param_groups":[{"params":["a","state.a.weight"]}]})");
  const std::set<std::string> names = {"a", "state.a.bias", "state.a.momentum_buffer", "state.a.weight",
                                       "state.state.a.weight.momentum_buffer"};
  EXPECT_THAT(optimizer_tensors(saved, names),
              ElementsAre("state.a.momentum_buffer", "state.state.a.weight.momentum_buffer"));
}

TEST(SavedOptimizer, OtherTextIsRefused) {
  for (const auto* text :
       {"", "{", "[]", R"({"type":1,"param_groups":[]})", R"({"type":"SGD"})", R"({"type":"SGD","param_groups":[{}]})",
        R"({"type":"SGD","param_groups":[{"params":[1]}]})"}) {
    EXPECT_THROW(parse_saved_optimizer(text), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace ddp
