// State dicts under the keys that programs use, and dicts that only look like them.
#include "checkpoint/pt/state_dict.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/unpickler.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::pt {
namespace {

using nlohmann::json;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using test::error_of;

using Fill = std::function<void(Pickler&)>;

void add_dict(Pickler& pickler, const std::string& key, const Fill& fill) {
  pickler.text(key);
  pickler.begin_dict();
  fill(pickler);
  pickler.end_dict();
}

void add_named_tensor(Pickler& pickler, const std::string& name, const char* storage = "0") {
  pickler.text(name);
  pickler.tensor({.storage = storage, .dtype = "float32"}, 1);
}

StateDict state_of(const Fill& fill, const ScalarReader& read_scalar = {}) {
  Pickler pickler;
  pickler.begin_dict();
  fill(pickler);
  pickler.end_dict();
  return find_state(unpickle(pickler.take())->root, read_scalar);
}

void add_group(Pickler& pickler, const std::vector<int64_t>& parameters, const Fill& options) {
  pickler.begin_dict();
  options(pickler);
  pickler.text("params");
  pickler.begin_list();
  for (const auto parameter : parameters) pickler.integer(parameter);
  pickler.end_list();
  pickler.end_dict();
}

TEST_CASE("StateDict: the model is found under any usual key, and alone") {
  for (const auto* key : {"model", "state_dict", "model_state_dict", "net", "module"}) {
    INFO(key);
    const auto state = state_of([&](Pickler& pickler) {
      add_dict(pickler, key, [](Pickler& inside) { add_named_tensor(inside, "w"); });
      add_named_tensor(pickler, "ema");
    });
    CHECK(state.tensors.size() == 1);
    CHECK(state.tensors.contains("w"));
  }
  UNSCOPED_INFO("a tensor of that name is a tensor");
  CHECK(state_of([](Pickler& pickler) { add_named_tensor(pickler, "model"); }).tensors.contains("model"));
  UNSCOPED_INFO("an empty one leaves it to the next");
  const auto next = state_of([](Pickler& pickler) {
    add_dict(pickler, "model", [](Pickler&) {});
    add_dict(pickler, "net", [](Pickler& inside) { add_named_tensor(inside, "w"); });
  });
  CHECK(next.tensors.contains("w"));
}

// Where its tensors do not fit the model, the error says which other entry could be meant.
TEST_CASE("StateDict: the entry that the model is taken from is not among those to choose from") {
  const auto add_entry = [](Pickler& pickler, const std::string& key) {
    add_dict(pickler, key, [](Pickler& inside) { add_named_tensor(inside, "w"); });
  };
  const auto alone = state_of([&](Pickler& pickler) { add_entry(pickler, "state_dict"); });
  CHECK(alone.tensors.contains("w"));
  CHECK(alone.entries.empty());
  const auto beside = state_of([&](Pickler& pickler) {
    add_entry(pickler, "state_dict");
    add_entry(pickler, "ema");
  });
  CHECK(beside.entries == std::vector<std::string>{"ema"});
}

TEST_CASE("StateDict: names are the keys with dots between them, whatever the keys are") {
  const auto state = state_of([](Pickler& pickler) {
    add_dict(pickler, "a", [](Pickler& inside) {
      add_dict(inside, "", [](Pickler& deeper) { add_named_tensor(deeper, "\xc3\xa4"); });
      inside.integer(-7);
      inside.tensor({.storage = "0", .dtype = "float32"}, 1);
    });
    add_named_tensor(pickler, ""s);
    add_named_tensor(pickler, "n\0ul"s);
  });
  CHECK(state.tensors.size() == 4);
  for (const auto& name : {"a..\xc3\xa4"s, "a.-7"s, ""s, "n\0ul"s}) {
    INFO(name);
    CHECK(state.tensors.contains(name));
  }
}

TEST_CASE("StateDict: of equal keys the last counts as in Python") {
  const auto state = state_of([](Pickler& pickler) {
    add_named_tensor(pickler, "w", "0");
    add_named_tensor(pickler, "w", "1");
  });
  CHECK(state.tensors.at("w").storage == "1");
  const auto chosen = state_of([](Pickler& pickler) {
    add_dict(pickler, "model", [](Pickler& inside) { add_named_tensor(inside, "early"); });
    add_dict(pickler, "model", [](Pickler& inside) { add_named_tensor(inside, "late"); });
  });
  CHECK(chosen.tensors.contains("late"));
  CHECK_FALSE(chosen.tensors.contains("early"));
}

TEST_CASE("StateDict: a dict that holds itself, or is nested without end, is refused") {
  for (const auto& pickle : {"\x80\2}q\0X\1\0\0\0ah\0s."s, "\x80\2}q\0X\5\0\0\0modelh\0s."s}) {
    CHECK_THROWS_AS(find_state(unpickle(pickle)->root), FormatError);
  }
  const auto nested = [](int levels) {
    Pickler pickler;
    for (int i = 0; i < levels; ++i) {
      pickler.begin_dict();
      pickler.text("a");
    }
    pickler.tensor({.storage = "0", .dtype = "float32"}, 1);
    for (int i = 0; i < levels; ++i) pickler.end_dict();
    return find_state(unpickle(pickler.take())->root).tensors.size();
  };
  CHECK(nested(90) == 1);
  CHECK_THAT(error_of<FormatError>([&] { nested(5000); }), ContainsSubstring("nested too deeply"));
}

TEST_CASE("StateDict: neither a model nor an optimizer is said to be one") {
  CHECK_THROWS_AS(state_of([](Pickler&) {}), FormatError);
  CHECK_THROWS_AS(state_of([](Pickler& pickler) {
                    pickler.text("epoch");
                    pickler.integer(1);
                    add_dict(pickler, "model", [](Pickler&) {});
                  }),
                  FormatError);
  for (const auto& pickle : {"N."s, "\x80\2K\1."s, "\x80\2]."s, "\x80\2X\1\0\0\0a."s}) {
    CHECK_THROWS_AS(find_state(unpickle(pickle)->root), FormatError);
  }
}

TEST_CASE("StateDict: a tensor without a name is refused") {
  Pickler pickler;
  pickler.tensor({.storage = "0", .dtype = "float32"}, 1);
  const auto pickle = unpickle(pickler.take());
  CHECK_THAT(error_of<FormatError>([&] { find_state(pickle->root); }), ContainsSubstring("a tensor without a name"));
}

TEST_CASE("StateDict: integers are names as texts are") {
  const auto state = state_of([](Pickler& pickler) {
    pickler.integer(0);
    pickler.tensor({.storage = "0", .dtype = "float32"}, 1);
  });
  CHECK(state.tensors.contains("0"));
}

TEST_CASE("StateDict: an optimizer's parameters are numbered through its groups") {
  const auto state = state_of(
      [](Pickler& pickler) {
        add_dict(pickler, "state", [](Pickler& states) {
          for (const int64_t parameter : {5, 9, 77}) {
            states.integer(parameter);
            states.begin_dict();
            add_named_tensor(states, "exp_avg");
            states.text("step");
            states.integer(parameter);
            states.text("momentum_buffer");
            states.none();
            states.end_dict();
          }
        });
        pickler.text("param_groups");
        pickler.begin_list();
        add_group(pickler, {9}, [](Pickler& group) { add_named_tensor(group, "lr"); });
        add_group(pickler, {3, 5}, [](Pickler& group) {
          group.text("betas");
          group.begin_tuple();
          group.real(0.5);
          group.real(0.75);
          group.end_tuple();
          group.text("eps");
          group.real(std::numeric_limits<double>::infinity());
          group.text("fused");
          group.none();
          add_dict(group, "odd", [](Pickler&) {});
        });
        pickler.end_list();
      },
      [](const TensorEntry&) { return std::optional(0.125); });
  CHECK(state.tensors.size() == 2);
  UNSCOPED_INFO("77 belongs to no group");
  CHECK(state.scalars == std::map<std::string, double>{{"state.#0.step", 9}, {"state.#2.step", 5}});
  const auto groups = json::parse(state.metadata.at(kOptimizerMetadata))["param_groups"];
  CHECK(groups[0]["lr"] == 0.125);
  CHECK(groups[0]["params"] == json::array({"#0"}));
  CHECK(groups[1]["params"] == json::array({"#1", "#2"}));
  CHECK(groups[1]["betas"] == json::array({0.5, 0.75}));
  CHECK(groups[1]["eps"] == json{{"__float__", "inf"}});
  CHECK_FALSE(groups[1].contains("odd"));
  CHECK(state.left_out ==
        std::map<std::string, std::string>{{"param_groups.1.odd", "not a number, a text or a list of them"},
                                           {"state.77", "state of no parameter in its groups"}});
  CHECK(state.skipped.empty());
}

TEST_CASE("StateDict: an optimizer's state under 0 and under '0' is not known, and equal keys are one") {
  const auto with_keys = [](bool is_text) {
    return [is_text](Pickler& pickler) {
      add_dict(pickler, "state", [&](Pickler& states) {
        states.integer(0);
        states.begin_dict();
        add_named_tensor(states, "exp_avg", "0");
        states.end_dict();
        is_text ? states.text("0") : states.integer(0);
        states.begin_dict();
        add_named_tensor(states, "exp_avg", "1");
        states.end_dict();
      });
      pickler.text("param_groups");
      pickler.begin_list();
      add_group(pickler, {0}, [](Pickler&) {});
      pickler.end_list();
    };
  };
  const auto equal = with_keys(false);
  CHECK(state_of(equal).tensors.at("state.#0.exp_avg").storage == "1");
  const auto other = with_keys(true);
  CHECK_THAT(error_of<FormatError>([&] { state_of(other); }), ContainsSubstring("two keys that both read '0'"));
}

TEST_CASE("StateDict: a model's tensor of the name that the optimizer's state has is refused, not lost") {
  const auto both = [](Pickler& pickler) {
    add_dict(pickler, "model", [](Pickler& inside) { add_named_tensor(inside, "state.#0.exp_avg"); });
    add_dict(pickler, "optimizer", [](Pickler& optimizer) {
      add_dict(optimizer, "state", [](Pickler& states) {
        states.integer(0);
        states.begin_dict();
        add_named_tensor(states, "exp_avg");
        states.end_dict();
      });
      optimizer.text("param_groups");
      optimizer.begin_list();
      add_group(optimizer, {0}, [](Pickler&) {});
      optimizer.end_list();
    });
  };
  CHECK_THAT(error_of<FormatError>([&] { state_of(both); }), ContainsSubstring("'state.#0.exp_avg'"));
}

TEST_CASE("StateDict: an odd optimizer costs the model nothing, and alone it is refused") {
  const Fill odd = [](Pickler& pickler) {
    add_dict(pickler, "state", [](Pickler&) {});
    pickler.text("param_groups");
    pickler.begin_list();
    pickler.integer(7);
    pickler.end_list();
  };
  const auto state = state_of([&](Pickler& pickler) {
    add_dict(pickler, "model", [](Pickler& inside) { add_named_tensor(inside, "w"); });
    add_dict(pickler, "optim", odd);
  });
  CHECK(state.tensors.size() == 1);
  CHECK(state.skipped.contains("optim"));
  CHECK(state.metadata.empty());
  CHECK_THROWS_AS(state_of(odd), FormatError);
}

}  // namespace
}  // namespace ddp::pt
