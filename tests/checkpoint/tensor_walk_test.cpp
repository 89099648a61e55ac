// The names of tensors below dicts, against a plain recursion over random trees; what has no name is listed; and what a
// small pickle can describe without end is refused.
#include "checkpoint/pt/tensor_walk.h"

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::pt {
namespace {

using Catch::Matchers::ContainsSubstring;

class TensorWalk {
 protected:
  Value tensor(const std::string& storage = "0") { return pickle_.tensor({.storage = storage, .dtype = "float32"}); }
  Value text(const std::string& value) { return pickle_.text(value); }
  Value dict(std::vector<Value> items) { return pickle_.container(Kind::kDict, std::move(items)); }
  Value list(std::vector<Value> items) { return pickle_.container(Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return pickle_.container(Kind::kTuple, std::move(items)); }
  Value object(const Value& state) {
    auto value = pickle_.object("__torch__.Net");
    value.object().state = state;
    return value;
  }
  static StateDict walk(const Value& value) {
    StateDict result;
    Budget budget;
    add_tensors(value, result, budget);
    return result;
  }
  // What the one item of a dict is skipped as.
  std::string skipped(const Value& key, const Value& item) {
    const auto state = walk(dict({key, item}));
    CHECK(state.tensors.empty());
    REQUIRE(state.skipped.size() == 1);
    return state.skipped.begin()->first + ": " + state.skipped.begin()->second;
  }

  Pickle pickle_;
};

// Name of a tensor, and its storage.
using Names = std::map<std::string, std::string>;

class RandomTree : public TensorWalk {
 protected:
  // A dict with keys of its own, and the names of what is in it.
  Value grow(std::mt19937& random, const std::string& prefix, int depth, Names& names) {
    std::vector<Value> items;
    const auto count = random() % 5;
    for (unsigned i = 0; i < count; ++i) {
      std::string key = "k" + std::to_string(i);
      switch (random() % 4) {
        case 0:
          items.emplace_back(int64_t{i} - 2);
          key = std::to_string(static_cast<int64_t>(i) - 2);
          break;
        case 1:
          items.push_back(pickle_.bytes(key));
          break;
        default:
          items.push_back(text(key));
      }
      items.push_back(item(random, prefix.empty() ? key : prefix + "." + key, depth, names));
    }
    return dict(items);
  }

 private:
  Value item(std::mt19937& random, const std::string& name, int depth, Names& names) {
    switch (random() % (depth > 0 ? 6 : 3)) {
      case 0:
        return Value(1.5);
      case 1:
        return list({Value(true), text("a")});
      case 2:
        names[name] = std::to_string(serial_);
        return tensor(std::to_string(serial_++));
      case 3:
        return object(grow(random, name, depth - 1, names));
      default:
        return grow(random, name, depth - 1, names);
    }
  }

  int serial_ = 0;
};

TEST_CASE_METHOD(RandomTree, "TensorWalk: every tensor has the keys above it as its name") {
  std::mt19937 random(11);
  size_t found = 0;
  for (int round = 0; round < 300; ++round) {
    Names names;
    const auto root = grow(random, "", 5, names);
    const auto state = walk(root);
    Names walked;
    for (const auto& [name, entry] : state.tensors) walked[name] = entry.storage;
    REQUIRE(walked == names);
    REQUIRE(state.skipped.empty());
    found += names.size();
  }
  CHECK(found > 500);
}

TEST_CASE_METHOD(TensorWalk, "TensorWalk: a tensor without a name is listed, as Python would show its key") {
  struct Case {
    Value key;
    const char* name;
  };
  const std::vector<Case> cases{{Value(), "None"},
                                {Value(true), "True"},
                                {Value(false), "False"},
                                {Value(2.5), "2.5"},
                                {Value(1.0), "1.0"},
                                {Value(1e-5), "1e-05"},
                                {tuple({}), "()"},
                                {tuple({Value(int64_t{1})}), "(1,)"},
                                {tuple({Value(int64_t{1}), text("a"), Value()}), "(1, 'a', None)"},
                                {tuple({tuple({tuple({tuple({})})})}), "(((…)))"},
                                {tuple(std::vector<Value>(9)), "(…)"},
                                {pickle_.global("torch.float32"), "torch.float32"},
                                {pickle_.other_value("a device"), "a device"}};
  for (const auto& [key, name] : cases) {
    INFO(name);
    if (std::string(name) != "(((…)))")
      CHECK(skipped(key, tensor()) == std::string(name) + ": below a key that is neither text nor integer");
    CHECK_THAT(skipped(key, dict({text("a"), tensor()})),
               ContainsSubstring("below a key that is neither text nor integer"));
    CHECK(walk(dict({key, Value(1.0)})).skipped.empty());
  }
}

TEST_CASE_METHOD(TensorWalk, "TensorWalk: what stands among tensors and is none of them is listed with what it is") {
  CHECK(skipped(text("w"), pickle_.other_tensor("a sparse tensor")) == "w: a sparse tensor");
  CHECK(skipped(text("w"), pickle_.storage({.key = "0"})) == "w: a storage; save the tensor instead");
  for (const auto& several : {list({tensor()}), tuple({Value(), tensor()}), list({pickle_.other_tensor("odd")})}) {
    CHECK(skipped(text("w"), several) == "w: a list or tuple; only tensors in dicts have names");
    CHECK(skipped(Value(int64_t{3}), several) == "3: a list or tuple; only tensors in dicts have names");
  }
  CHECK(walk(dict({text("w"), list({Value(1.0), list({tensor()})})})).skipped.empty());
  UNSCOPED_INFO("alone it has no name at all");
  CHECK(walk(tensor()).tensors.contains(""));
  CHECK(walk(pickle_.other_tensor("odd")).skipped.at("") == "odd");
  for (const auto& plain : {Value(), Value(1.0), list({tensor()}), object(tensor())}) {
    const auto state = walk(plain);
    CHECK((state.tensors.empty() && state.skipped.empty()));
  }
}

TEST_CASE_METHOD(TensorWalk, "TensorWalk: of equal keys the last counts, whether it can be read or not") {
  const auto odd = pickle_.other_tensor("odd");
  const auto read = walk(dict({text("w"), odd, text("w"), tensor("1")}));
  CHECK(read.tensors.at("w").storage == "1");
  CHECK(read.skipped.empty());
  const auto not_read = walk(dict({text("w"), tensor("1"), text("w"), odd}));
  CHECK(not_read.tensors.empty());
  CHECK(not_read.skipped.at("w") == "odd");
}

TEST_CASE_METHOD(TensorWalk, "TensorWalk: of equal keys only the last one's tensors are there") {
  const auto state =
      walk(dict({text("a"), dict({text("early"), tensor()}), text("a"), dict({text("late"), tensor()})}));
  CHECK(state.tensors.size() == 1);
  CHECK(state.tensors.contains("a.late"));
}

TEST_CASE_METHOD(TensorWalk, "TensorWalk: two tensors of one name are refused with it, whichever came first") {
  const auto odd = pickle_.other_tensor("odd");
  const auto inner = [&](const Value& item) { return dict({text("b"), item}); };
  const auto refusal = [](const Value& value) { return test::error_of<FormatError>([&] { walk(value); }); };
  for (const auto& first : {tensor("1"), odd}) {
    for (const auto& second : {tensor("2"), odd}) {
      CHECK_THAT(refusal(dict({text("a"), inner(first), text("a.b"), second})), ContainsSubstring("the name 'a.b'"));
      CHECK_THAT(refusal(dict({text("a.b"), first, text("a"), inner(second)})), ContainsSubstring("the name 'a.b'"));
    }
  }
  UNSCOPED_INFO("other keys of one text, and the empty key above");
  CHECK_THAT(refusal(dict({text("7"), tensor("1"), Value(int64_t{7}), tensor("2")})), ContainsSubstring("'7'"));
  CHECK_THAT(refusal(dict({text("w"), tensor("1"), pickle_.bytes("w"), tensor("2")})), ContainsSubstring("'w'"));
  CHECK_THAT(refusal(dict({text(""), dict({text("w"), tensor("1")}), text("w"), tensor("2")})),
             ContainsSubstring("'w'"));
  UNSCOPED_INFO("what has no tensors takes no name");
  CHECK(walk(dict({text("a"), inner(Value(1.0)), text("a.b"), tensor("2")})).tensors.at("a.b").storage == "2");
}

TEST_CASE_METHOD(TensorWalk, "TensorWalk: a depth of a hundred is read, and no more") {
  auto nested = tensor();
  for (int i = 0; i < 100; ++i) nested = dict({text("a"), nested});
  CHECK(walk(nested).tensors.size() == 1);
  CHECK_THROWS_WITH(walk(dict({text("a"), nested})), ContainsSubstring("nested too deeply"));
  auto round = dict({});
  round.items() = {text("a"), round};
  CHECK_THROWS_WITH(walk(round), ContainsSubstring("nested too deeply"));
  round.items() = {text("a"), round, text("b"), round};
  CHECK_THROWS_AS(walk(round), FormatError);
}

TEST_CASE_METHOD(TensorWalk, "TensorWalk: containers that name each other again and again come to an end") {
  // 2^40 tensors in 40 dicts; a list that as many keys refer to; long keys on every level.
  auto doubled = tensor();
  for (int i = 0; i < 40; ++i) doubled = dict({text("a"), doubled, text("b"), doubled});
  CHECK_THROWS_WITH(walk(doubled), ContainsSubstring("name the same values too often"));
  const auto wide = list(std::vector<Value>(100'000));
  std::vector<Value> items;
  for (int i = 0; i < 5000; ++i) items.insert(items.end(), {text(std::to_string(i)), wide});
  CHECK_THROWS_WITH(walk(dict(items)), ContainsSubstring("name the same values too often"));
  auto long_names = tensor();
  const auto key = text(std::string(1 << 20, 'n'));
  for (int i = 0; i < 90; ++i) long_names = dict({key, long_names});
  CHECK_THROWS_WITH(walk(long_names), ContainsSubstring("name the same values too often"));
  UNSCOPED_INFO("what is spent is spent");
  Budget budget;
  CHECK_NOTHROW(budget.spend(25 << 20));
  CHECK_THROWS_AS(budget.spend(25 << 20), FormatError);
}

TEST_CASE_METHOD(TensorWalk, "TensorWalk: a module of LibTorch's is the dict of its attributes") {
  const auto layer = object(dict({text("weight"), tensor("1"), text("training"), Value(true)}));
  const auto net = object(dict({text("fc"), layer, text("bias"), tensor("2")}));
  const auto state = walk(net);
  CHECK(state.tensors.at("fc.weight").storage == "1");
  CHECK(state.tensors.at("bias").storage == "2");
  CHECK(state.tensors.size() == 2);
  CHECK(as_dict(layer) == &layer.object().state);
  CHECK(as_dict(object(Value())) == nullptr);
  CHECK(as_dict(list({})) == nullptr);
  CHECK(key_text(Value(int64_t{-3})) == "-3");
  CHECK(key_text(Value(true)) == std::nullopt);
  CHECK(key_text(Value(1.0)) == std::nullopt);
}

}  // namespace
}  // namespace ddp::pt
