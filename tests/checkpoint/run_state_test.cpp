// The parts of a run in dicts as programs save them by hand, and in those that nobody saves but somebody sends.
#include "checkpoint/pt/run_state.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <limits>
#include <string>

#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/zip_writer.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace ddp::pt {
namespace {

using nlohmann::json;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using test::error_of;

// A file whose root is a dict of what `fill` adds. Storage "0" holds the number 0.25, "1" eight bytes.
PtFile state_file_of(const std::function<void(Pickler&)>& fill) {
  Pickler pickler;
  pickler.begin_dict();
  fill(pickler);
  pickler.end_dict();
  test::TextSink sink;
  ZipWriter zip(sink);
  zip.add("a/data.pkl", pickler.take());
  zip.add("a/data/0", "\0\0\x80\x3e"s);
  zip.add("a/data/1", "01234567");
  zip.finish();
  return {storage::own_bytes(sink.text), "run.pt"};
}

void add_tensor(Pickler& pickler, const char* name, const char* dtype = "float32") {
  pickler.text(name);
  const bool is_number = dtype == "float32"s;
  const TensorEntry entry{.storage = is_number ? "0" : "1", .dtype = dtype};
  pickler.tensor(entry, is_number ? 1 : 8);
}

void add_model(Pickler& pickler, const char* key = "model") {
  pickler.text(key);
  pickler.begin_dict();
  add_tensor(pickler, "fc.weight");
  pickler.end_dict();
}

void add_optimizer(Pickler& pickler, const char* key, double lr) {
  pickler.text(key);
  pickler.begin_dict();
  pickler.text("state");
  pickler.begin_dict();
  pickler.integer(0);
  pickler.begin_dict();
  add_tensor(pickler, "momentum_buffer");
  pickler.end_dict();
  pickler.end_dict();
  pickler.text("param_groups");
  pickler.begin_list();
  pickler.begin_dict();
  pickler.text("lr");
  pickler.real(lr);
  pickler.text("params");
  pickler.begin_list();
  pickler.integer(0);
  pickler.end_list();
  pickler.end_dict();
  pickler.end_list();
  pickler.end_dict();
}

double lr_of(const RunState& run, const std::string& name) {
  REQUIRE(run.optimizers.contains(name));
  return json::parse(run.optimizers.at(name).metadata.at(kOptimizerMetadata))["param_groups"][0]["lr"];
}

TEST_CASE("RunState: optimizers are found by every usual name") {
  const auto run = find_run(state_file_of([](Pickler& pickler) {
    add_model(pickler);
    add_optimizer(pickler, "optimizer", 1);
    add_optimizer(pickler, "optimizer_g", 2);
    add_optimizer(pickler, "d_optimizer", 3);
    add_optimizer(pickler, "optim_e", 4);
    pickler.text("optimizers");
    pickler.begin_dict();
    add_optimizer(pickler, "f", 5);
    pickler.end_dict();
    pickler.text("optimizer_name");
    pickler.text("Adam");
  }));
  CHECK(run.has_model);
  CHECK(run.optimizers.size() == 5);
  CHECK(lr_of(run, "") == 1);
  CHECK(lr_of(run, "g") == 2);
  CHECK(lr_of(run, "d") == 3);
  CHECK(lr_of(run, "e") == 4);
  CHECK(lr_of(run, "f") == 5);
  CHECK(run.optimizers.at("").tensors.contains("state.#0.momentum_buffer"));
  UNSCOPED_INFO("the optimizer's tensors are not the model's");
  CHECK(run.model.tensors.size() == 1);
  CHECK(run.model.metadata.empty());
  CHECK(json::parse(run.values)["optimizer_name"] == "Adam");
}

TEST_CASE("RunState: a list of optimizers names them by number, a list of one is the main one") {
  const auto listed = [](int count) {
    return find_run(state_file_of([&](Pickler& pickler) {
      add_model(pickler);
      pickler.text("optimizers");
      pickler.begin_list();
      for (int i = 0; i < count; ++i) {
        pickler.begin_dict();
        pickler.text("state");
        pickler.begin_dict();
        pickler.end_dict();
        pickler.text("param_groups");
        pickler.begin_list();
        pickler.end_list();
        pickler.end_dict();
      }
      pickler.end_list();
    }));
  };
  CHECK(listed(1).optimizers.contains(""));
  CHECK(listed(2).optimizers.contains("1"));
  CHECK(listed(64).optimizers.size() == 64);
  CHECK_THROWS_WITH(listed(65), ContainsSubstring("more than 64 optimizers"));
}

TEST_CASE("RunState: an optimizer alone is a run, nothing at all is none") {
  const auto run = find_run(state_file_of([](Pickler& pickler) {
    add_optimizer(pickler, "optimizer", 1);
    pickler.text("epoch");
    pickler.integer(3);
  }));
  CHECK_FALSE(run.has_model);
  CHECK(run.step == 3);
  CHECK(lr_of(run, "") == 1);
  CHECK_THROWS_AS(find_run(state_file_of([](Pickler&) {})), FormatError);
  CHECK_THROWS_AS(find_run(state_file_of([](Pickler& pickler) {
                    pickler.text("epoch");
                    pickler.integer(3);
                  })),
                  FormatError);
}

TEST_CASE("RunState: the step is a whole number, of the key that tells most") {
  const auto step = [](const std::function<void(Pickler&)>& add) {
    return find_run(state_file_of([&](Pickler& pickler) {
             add_model(pickler);
             add(pickler);
           }))
        .step;
  };
  const auto pair = [](const char* key, int64_t value) {
    return [key, value](Pickler& pickler) {
      pickler.text(key);
      pickler.integer(value);
    };
  };
  CHECK(step(pair("epoch", 7)) == 7);
  CHECK(step(pair("global_step", std::numeric_limits<int64_t>::max())) == std::numeric_limits<int64_t>::max());
  CHECK(step(pair("step", -1)) == std::nullopt);
  CHECK(step([&](Pickler& pickler) {
          pair("epoch", 7)(pickler);
          pair("iteration", 700)(pickler);
        }) == 700);
  UNSCOPED_INFO("one that is not a step leaves it to the next");
  CHECK(step([&](Pickler& pickler) {
          pickler.text("step");
          pickler.real(1.5);
          pair("epoch", 2)(pickler);
        }) == 2);
  CHECK(step([&](Pickler& pickler) {
          pickler.text("step");
          pickler.boolean(true);
        }) == std::nullopt);
  CHECK(step([&](Pickler& pickler) {
          pickler.text("step");
          pickler.whole_number(~uint64_t{0});
        }) == std::nullopt);
}

TEST_CASE("RunState: states are JSON, objects of the program's own their bytes") {
  const auto run = find_run(state_file_of([](Pickler& pickler) {
    add_model(pickler);
    pickler.text("scaler");
    pickler.begin_dict();
    add_tensor(pickler, "scale");
    add_tensor(pickler, "no number", "int8");
    pickler.text("inf");
    pickler.real(std::numeric_limits<double>::infinity());
    pickler.integer(5);
    pickler.begin_tuple();
    pickler.none();
    pickler.text("\xff");
    pickler.end_tuple();
    pickler.end_dict();
    pickler.text("lr_scheduler");
    pickler.bytes("\0\x1b own"s);
    pickler.text("sampler");
    pickler.text("no state");
  }));
  const auto scaler = json::parse(run.scaler);
  CHECK(scaler["scale"] == 0.25);
  CHECK(scaler["no number"].is_null());
  UNSCOPED_INFO("in states it stands for: not yet");
  CHECK(scaler["inf"].is_null());
  CHECK(scaler["5"] == json::array({nullptr, "\xef\xbf\xbd"}));
  CHECK(run.schedule == "\0\x1b own"s);
  CHECK_THAT(run.sampler, IsEmpty());
}

TEST_CASE("RunState: values keep infinities by name, and what is no plain value is left out") {
  const auto run = find_run(state_file_of([](Pickler& pickler) {
    add_model(pickler);
    pickler.text("best");
    pickler.real(-std::numeric_limits<double>::infinity());
    pickler.text("note");
    pickler.text("\xc3\xa4\xff\x1b");
    pickler.text("raw");
    pickler.bytes("x");
    pickler.text("history");
    pickler.begin_list();
    pickler.end_list();
    pickler.integer(4);
    pickler.boolean(true);
    pickler.text("step");
    pickler.integer(9);
    pickler.text("values");
    pickler.begin_dict();
    pickler.text("best");
    pickler.integer(1);
    pickler.text("list");
    pickler.begin_list();
    pickler.integer(2);
    pickler.end_list();
    pickler.end_dict();
  }));
  const auto values = json::parse(run.values), plain = json::parse(run.plain), own = json::parse(run.own_values);
  CHECK(own == json{{"best", 1}, {"list", {2}}});
  CHECK(plain["best"] == json{{"__float__", "-inf"}});
  CHECK(plain["step"] == 9);
  CHECK(plain["4"] == true);
  CHECK(plain["note"] == "\xc3\xa4\xef\xbf\xbd\x1b");
  UNSCOPED_INFO("where they have a place of their own they count, and the step is the run's");
  CHECK(values["best"] == 1);
  CHECK_FALSE(values.contains("step"));
  for (const auto* key : {"raw", "history", "model", "values"}) CHECK_FALSE(plain.contains(key));
}

TEST_CASE("RunState: values under keys that read the same are refused, as JSON would lose one") {
  const auto with_keys = [](bool other) {
    return state_file_of([&](Pickler& pickler) {
      add_model(pickler);
      pickler.text("values");
      pickler.begin_dict();
      pickler.integer(1);
      pickler.text("a");
      other ? pickler.text("1") : pickler.integer(1);
      pickler.text("b");
      pickler.end_dict();
    });
  };
  CHECK(json::parse(find_run(with_keys(false)).own_values)["1"] == "b");
  CHECK_THAT(error_of<FormatError>([&] { find_run(with_keys(true)); }), ContainsSubstring("keys that both read '1'"));
}

TEST_CASE("RunState: random streams are one rank's, or a list with one for each") {
  const auto one = find_run(state_file_of([](Pickler& pickler) {
    add_model(pickler);
    add_tensor(pickler, "rng_state", "uint8");
  }));
  REQUIRE(one.rng.size() == 1);
  CHECK(one.rng[0].contains("cpu"));
  const auto of_other_dtype = find_run(state_file_of([](Pickler& pickler) {
    add_model(pickler);
    add_tensor(pickler, "rng_state", "int8");
  }));
  CHECK(of_other_dtype.rng.empty());
  const auto many = find_run(state_file_of([](Pickler& pickler) {
    add_model(pickler);
    pickler.text("rng");
    pickler.begin_list();
    pickler.begin_dict();
    add_tensor(pickler, "cpu", "uint8");
    add_tensor(pickler, "cuda", "float32");
    pickler.end_dict();
    pickler.none();
    pickler.begin_dict();
    add_tensor(pickler, "cpu", "uint8");
    pickler.end_dict();
    pickler.end_list();
  }));
  REQUIRE(many.rng.size() == 3);
  CHECK(many.rng[0].size() == 1);
  UNSCOPED_INFO("a rank without one keeps the others at their numbers");
  CHECK((many.rng[1].empty() && many.rng[2].contains("cpu")));
}

TEST_CASE("RunState: entries are found below dots, and what there is is said without commands") {
  const auto file = state_file_of([](Pickler& pickler) {
    pickler.text("state");
    pickler.begin_dict();
    add_model(pickler, "ema");
    add_model(pickler, "");
    pickler.end_dict();
    pickler.text("\x1b[2J");
    pickler.none();
    for (int i = 0; i < 1000; ++i) {
      pickler.text("key" + std::to_string(i));
      pickler.none();
    }
  });
  CHECK(select(file.root(), "state.ema").find("fc.weight") != nullptr);
  CHECK(select(file.root(), "state.").find("fc.weight") != nullptr);
  CHECK(find_run(file, "state.ema").model.tensors.contains("fc.weight"));
  for (const auto* key : {"ema", "state.ema.fc", "state.ema.fc.weight.x", ".state", "state..ema", "."}) {
    INFO(key);
    const auto message = error_of<FormatError>([&] { select(file.root(), key); });
    CHECK_THAT(message, ContainsSubstring("it has no entry '"s + key + "'"));
    CHECK(message.size() < 400);
    CHECK(message.find('\x1b') == std::string::npos);
  }
}

// {"scaler": {"0": [], "1": [x, x], "2": [y, y], …}}, each twice the one before: a small file that describes a text of
// 2^30 items.
TEST_CASE("RunState: a pickle that repeats itself without end is refused soon") {
  const auto tensor =
      "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
      "0X\3\0\0\0cpuK\1tQK\0))\x89}tR"s;
  std::string pickle = "\x80\2}(X\5\0\0\0model}X\1\0\0\0w"s + tensor + "sX\6\0\0\0scaler}("s;
  for (char i = 0; i < 30; ++i) {
    pickle += "X\1\0\0\0"s + static_cast<char>('0' + i) + "](";
    if (i > 0) pickle += "h"s + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1);
    pickle += "eq"s + i;
  }
  pickle += "uu."s;
  test::TextSink sink;
  ZipWriter zip(sink);
  zip.add("a/data.pkl", pickle);
  zip.add("a/data/0", "0123");
  zip.finish();
  const PtFile file(storage::own_bytes(sink.text), "run.pt");
  CHECK_THAT(error_of<FormatError>([&] { find_run(file); }), ContainsSubstring("nested too deeply or often"));
}

}  // namespace
}  // namespace ddp::pt
