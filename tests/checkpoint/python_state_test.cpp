// States that may be anything: a program's own class can save any text under the name of a scaler or schedule.
#include "checkpoint/core/python_state.h"

#include <nlohmann/json.hpp>

#include <string>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using nlohmann::json;

std::string nested(int levels) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += R"({"a":)";
  return text + "1" + std::string(static_cast<size_t>(levels), '}');
}

// A schedule within schedules, as SequentialLR has them.
std::string composed(int levels) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += R"({"type":"SequentialLR","_schedulers":[)";
  text += R"({"type":"StepLR","groups":[{"max_lr":2}],"last_epoch":3})";
  for (int i = 0; i < levels; ++i) text += "]}";
  return R"({"schedule":)" + text + R"(,"groups":[{"lr":0.5,"initial_lr":1.0}]})";
}

TEST_CASE("PythonState: only a JSON object is one, and it comes back byte for byte") {
  const std::string object = " {\"a\": 1.0,\n \"a\": 2}";
  CHECK(json_object(object) == object);
  CHECK(json_object("{}") == "{}");
  for (const auto& text : {std::string(), std::string("[]"), std::string("7"), std::string("null"), std::string("{"),
                           std::string("{}{}"), std::string("PK\3\4"), std::string("{\"a\": \"\xff\"}"),
                           std::string("{\"a\": 1e999}"), std::string("{\"a\": NaN}")}) {
    INFO(text);
    CHECK_FALSE(json_object(text));
  }
}

// An object of the program's own: it is kept as bytes and ends no conversion.
TEST_CASE("PythonState: an object nested beyond all states is one of the program's own") {
  CHECK(json_object(nested(60)));
  for (const int levels : {70, 1000, 100'000}) {
    CHECK_FALSE(json_object(nested(levels)));
    CHECK(python_schedule(nested(levels)) == nested(levels));
    CHECK(with_schedule(R"({"param_groups":[{}]})", nested(levels)) == R"({"param_groups":[{}]})");
    CHECK(with_schedule(nested(levels), composed(0)) == nested(levels));
  }
}

TEST_CASE("PythonState: what is no state of ours is not changed into nonsense") {
  for (const auto* text : {"", "no JSON", "[1, 2]", "5", "\"schedule\""}) {
    INFO(text);
    CHECK(python_schedule(text) == text);
    CHECK(with_schedule(text, composed(1)) == text);
    CHECK(with_schedule(R"({"param_groups":[{}]})", text) == R"({"param_groups":[{}]})");
  }
}

TEST_CASE("PythonState: a program's own schedule may call its fields as ours") {
  const auto same = [](const char* text) { return json::parse(python_schedule(text)) == json::parse(text); };
  CHECK(same(R"({"phase": 3, "_schedulers": 7})"));
  CHECK(same(R"({"_schedulers": {"warm": [1]}})"));
  CHECK(same(R"({"_schedulers": [1, "a", null, [2]]})"));
  CHECK(same(R"({"milestones": [3, 4], "base_lrs": 0.1})"));
  CHECK(same(R"({"schedule": {"a": 1}, "groups": [1, 2]})") == false);  // `groups` is ours alone
  CHECK(json::parse(python_schedule(R"({"type": 5, "last_epoch": 2})")) == json{{"last_epoch", 2}});
  CHECK(json::parse(python_schedule(R"({"schedule": {"a": 1}, "groups": {"lr": 1}})")).contains("schedule"));
  CHECK(json::parse(python_schedule(R"({"schedule": {"a": 1}, "groups": [{"rate": 1}]})")).contains("schedule"));
}

TEST_CASE("PythonState: composed schedules lose what Python does not know on every level") {
  for (const int levels : {0, 1, 5, 16}) {
    INFO(levels);
    const auto state = json::parse(python_schedule(composed(levels)));
    CHECK(state["_last_lr"] == json{0.5});
    CHECK(state.dump().find("groups") == std::string::npos);
    const auto* part = &state;
    for (int i = 0; i < levels; ++i) {
      CHECK((*part)["type"] == "SequentialLR");
      part = &(*part)["_schedulers"][0];
    }
    CHECK((*part)["last_epoch"] == 3);
    CHECK((*part)["type"] == "StepLR");
  }
}

TEST_CASE("PythonState: a list of functions is as long as there are groups") {
  const auto state = json::parse(python_schedule(
      R"({"schedule":{"type":"LambdaLR"},"groups":[{"lr":1,"initial_lr":1},{"lr":2,"initial_lr":2}]})"));
  CHECK(state["lr_lambdas"] == json{nullptr, nullptr});
  CHECK(state["_last_lr"] == json{1, 2});
  CHECK(json::parse(python_schedule(R"({"type":"MultiplicativeLR","base_lrs":[1,2,3]})"))["lr_lambdas"].size() == 3);
}

TEST_CASE("PythonState: groups get the schedule's numbers when there are as many, and else nothing") {
  const std::string schedule = R"({"schedule":{"_schedulers":[{"groups":[{"max_lr":9},{"max_lr":8}]}]},)"
                               R"("groups":[{"lr":1,"initial_lr":3},{"lr":2,"initial_lr":4}]})";
  const auto groups = json::parse(with_schedule(R"({"param_groups":[{"lr":0.1},{"lr":0.2}]})", schedule));
  CHECK(groups["param_groups"] ==
        json::parse(R"([{"lr":0.1,"initial_lr":3,"max_lr":9},{"lr":0.2,"initial_lr":4,"max_lr":8}])"));
  for (const auto* text : {R"({"param_groups":[{"lr":0.1}]})", R"({"param_groups":{"lr":0.1,"a":1}})", R"({})",
                           R"({"param_groups":[1,2]})", R"({"param_groups":null})"}) {
    INFO(text);
    CHECK(with_schedule(text, schedule) == text);
  }
  UNSCOPED_INFO("bounds that are none are left out");
  const std::string odd =
      R"({"schedule":{"groups":[5,{"max_lr":8}],"_schedulers":3},"groups":[{"lr":1,"initial_lr":3},{"lr":2,"initial_lr":4}]})";
  CHECK(json::parse(with_schedule(R"({"param_groups":[{},{}]})", odd))["param_groups"] ==
        json::parse(R"([{"initial_lr":3},{"initial_lr":4,"max_lr":8}])"));
}

}  // namespace
}  // namespace ddp
