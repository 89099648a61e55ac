#include "checkpoint/core/saved_optimizer.h"

#include <set>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using test::ElementsAre;

// A group as Python's Adam and AdamW of 2.11 write it.
std::string adam(const char* weight_decay, const char* decoupled) {
  return std::string(R"({"type":"","param_groups":[{"params":["#0"],"lr":0.1,"betas":[0.9,0.999],"eps":1e-8,)") +
         R"("amsgrad":false,"maximize":false,"weight_decay":)" + weight_decay + decoupled + "}]}";
}

std::string objection(const std::string& text, std::string_view type) {
  return type_conflict(parse_saved_optimizer(text), type);
}

TEST_CASE("SavedOptimizer: decoupled weight decay is for Adam w alone unless it is zero") {
  const auto adamw = adam("0.01", R"(,"decoupled_weight_decay":true)");
  CHECK_THAT(objection(adamw, "AdamW"), IsEmpty());
  CHECK_THAT(objection(adamw, "Adam"), ContainsSubstring("load it into AdamW"));
  const auto plain = adam("0.01", R"(,"decoupled_weight_decay":false)");
  CHECK_THAT(objection(plain, "Adam"), IsEmpty());
  CHECK_THAT(objection(plain, "AdamW"), ContainsSubstring("load it into Adam"));
  for (const auto* type : {"Adam", "AdamW"}) {
    CHECK_THAT(objection(adam("0", R"(,"decoupled_weight_decay":true)"), type), IsEmpty());
    CHECK_THAT(objection(adam("0.0", R"(,"decoupled_weight_decay":false)"), type), IsEmpty());
    UNSCOPED_INFO("older files do not tell");
    CHECK_THAT(objection(adam("0.01", ""), type), IsEmpty());
    CHECK_THAT(objection(adam("0.01", R"(,"decoupled_weight_decay":1)"), type), ContainsSubstring("damaged"));
  }
}

TEST_CASE("SavedOptimizer: relatives that have other hyper parameters are refused") {
  const std::string radam =
      R"({"type":"","param_groups":[{"params":["#0"],"lr":0.1,"betas":[0.9,0.999],"eps":1e-8,"weight_decay":0}]})";
  CHECK_THAT(objection(radam, "Adam"), ContainsSubstring("its hyper-parameters lack amsgrad"));
  const std::string sgd =
      R"({"type":"","param_groups":[{"params":["#0"],"lr":0.1,"momentum":0,"dampening":0,"nesterov":false}]})";
  CHECK_THAT(objection(sgd, "SGD"), IsEmpty());
  CHECK_THAT(objection(sgd, "Adam"), ContainsSubstring("lack betas, eps, amsgrad"));
  CHECK_THAT(objection(sgd, "Adagrad"), ContainsSubstring("lack lr_decay, eps"));
  const std::string rmsprop =
      R"({"type":"","param_groups":[{"params":["#0"],"lr":0.1,"momentum":0.9,"alpha":0.99,"eps":1e-8}]})";
  CHECK_THAT(objection(rmsprop, "SGD"), ContainsSubstring("lack dampening, nesterov"));
}

TEST_CASE("SavedOptimizer: a type that the file names counts") {
  const std::string text = R"({"type":"AdamW","param_groups":[]})";
  CHECK_THAT(objection(text, "AdamW"), IsEmpty());
  CHECK(objection(text, "Adam") == "it holds the state of 'AdamW', but the optimizer is Adam");
}

TEST_CASE("SavedOptimizer: a file's word is not a command to the terminal") {
  const auto text = objection(R"({"type":"\u001b]0;x\u0007","param_groups":[]})", "SGD");
  CHECK_THAT(text, ContainsSubstring("\\x1b]0;x\\x07") && ContainsSubstring("the optimizer is SGD"));
}

TEST_CASE("SavedOptimizer: every group must fit, not the first alone") {
  const std::string whole = R"({"params":[],"lr":1,"momentum":0,"dampening":0,"nesterov":false})";
  const auto text = R"({"type":"","param_groups":[)" + whole + R"(,{"params":[],"lr":1,"momentum":0}]})";
  CHECK_THAT(objection(text, "SGD"), ContainsSubstring("lack dampening, nesterov"));
}

TEST_CASE("SavedOptimizer: names with dots and names of nothing are told apart") {
  const auto saved =
      parse_saved_optimizer(R"({"type":"Adam","param_groups":[{"params":["a","a.b",""]},{"params":["c"]}]})");
  const std::set<std::string> names = {"state..step",         "state.a.b.exp_avg", "state.a.exp_avg",
                                       "state.a.b.c.exp_avg", "state.c.step",      "state.c.momentum_buffer",
                                       "state.d.step",        "state.a."};
  CHECK_THAT(optimizer_tensors(saved, names),
             ElementsAre("state..step", "state.a.b.exp_avg", "state.a.exp_avg", "state.c.step"));
  const auto sgd = parse_saved_optimizer(R"({"type":"SGD","param_groups":[{"params":["a"]}]})");
  CHECK_THAT(optimizer_tensors(sgd, {"state.a.", "state.a.momentum_buffer"}), ElementsAre("state.a.momentum_buffer"));
}

TEST_CASE("SavedOptimizer: tensors of a module called state are not the optimizers") {
  const auto saved = parse_saved_optimizer(R"({"type":"SGD","param_groups":[{"params":["a","state.a.weight"]}]})");
  const std::set<std::string> names = {"a", "state.a.bias", "state.a.momentum_buffer", "state.a.weight",
                                       "state.state.a.weight.momentum_buffer"};
  CHECK_THAT(optimizer_tensors(saved, names),
             ElementsAre("state.a.momentum_buffer", "state.state.a.weight.momentum_buffer"));
}

TEST_CASE("SavedOptimizer: other text is refused") {
  for (const auto* text :
       {"", "{", "[]", R"({"type":1,"param_groups":[]})", R"({"type":"SGD"})", R"({"type":"SGD","param_groups":[{}]})",
        R"({"type":"SGD","param_groups":[{"params":[1]}]})", R"({"type":"SGD","param_groups":null})",
        R"({"type":"SGD","param_groups":{"0":{"params":[]}}})",
        R"({"type":"SGD","param_groups":[{"params":{"0":"a"}}]})", R"({"type":"SGD","param_groups":[[]]})",
        R"({"type":null,"param_groups":[]})"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_saved_optimizer(text), std::invalid_argument);
  }
}

}  // namespace
}  // namespace ddp
