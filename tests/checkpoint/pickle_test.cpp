
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/memo.h"
#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/pt/unpickler.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace ddp::pt {
namespace {

using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;
using test::error_of;

std::string refusal(const std::string& bytes) {
  return error_of([&] { unpickle(bytes); });
}

std::string example() {
  Pickler pickler;
  pickler.begin_dict();
  pickler.text("model");
  pickler.begin_dict();
  pickler.text("fc.weight");
  pickler.tensor({.storage = "0", .dtype = "float32", .offset = 2, .sizes = {3, 4}, .strides = {4, 1}}, 14);
  pickler.text("fc.mask");
  pickler.tensor({.storage = "1", .dtype = "uint16", .sizes = {}, .strides = {}}, 1);
  pickler.end_dict();
  pickler.text("values");
  pickler.begin_list();
  pickler.none();
  pickler.boolean(true);
  for (const int64_t value : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{-1}, int64_t{1} << 40,
                              std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    pickler.integer(value);
  }
  pickler.real(0.1);
  pickler.bytes("\0\x7f\x80\xff"s);
  pickler.begin_tuple();
  pickler.end_tuple();
  pickler.end_list();
  pickler.integer(7);
  pickler.text("integer keys are fine");
  pickler.end_dict();
  return pickler.take();
}

TEST_CASE("Pickle: what is written comes back") {
  const auto pickle = unpickle(example());
  const auto& root = pickle->root;
  const auto* model = root.find("model");
  REQUIRE(model != nullptr);
  const auto& weight = model->find("fc.weight")->tensor();
  CHECK(weight.storage == "0");
  CHECK(weight.dtype == "float32");
  CHECK(weight.offset == 2);
  CHECK_THAT(weight.sizes, ElementsAre(3, 4));
  CHECK_THAT(weight.strides, ElementsAre(4, 1));
  CHECK(model->find("fc.mask")->tensor().dtype == "uint16");
  const auto& values = root.find("values")->items();
  REQUIRE(values.size() == 12);
  CHECK(values[0].is(Kind::kNone));
  CHECK(values[1].boolean());
  CHECK(values[3].integer() == 255);
  CHECK(values[5].integer() == -1);
  CHECK(values[6].integer() == int64_t{1} << 40);
  CHECK(values[7].integer() == std::numeric_limits<int64_t>::min());
  CHECK(values[8].integer() == std::numeric_limits<int64_t>::max());
  CHECK(values[9].real() == 0.1);
  CHECK(values[10].text() == "\0\x7f\x80\xff"s);
  CHECK(values[11].is(Kind::kTuple));
  CHECK(root.find("absent") == nullptr);
}

TEST_CASE("Pickle: what is asked of any other function or class is passed over, however it is asked") {
  for (const char* global :
       {"os\nsystem\n", "builtins\neval\n", "builtins\ngetattr\n", "torch\nload\n", "torch.storage\n_load_from_bytes\n",
        "numpy.core.multiarray\n_reconstruct\n", "torch.hub\nload\n", "posix\nsystem\n", "\n\n"}) {
    INFO(global);
    const auto name = "c"s + global;
    for (const auto& object : {name + "X\2\0\0\0ls\x85R"s, name + ")\x81"s, name + ")}\x92"s, name + ")R)R"s,
                               name + ")R)\x81"s, name + ")\x81}X\1\0\0\0aK\1sb"s, name + ")RK\1a"s,
                               name + ")R(K\1K\2e"s, name + ")RK\1K\2s"s, name + ")R(K\1K\2u"s, name + ")R(K\1\x90"s}) {
      const auto pickle = unpickle("\x80\2}(X\1\0\0\0a"s + object + "X\1\0\0\0bK\7u."s);
      REQUIRE(pickle->root.find("a")->is(Kind::kForeign));
      CHECK_THAT(pickle->root.find("a")->text(), ContainsSubstring("an object of "));
      CHECK(pickle->root.find("b")->integer() == 7);
    }
  }
  // Allowed as names, not as functions.
  CHECK_THAT(refusal("\x80\2ctorch\nFloatStorage\n)R."s),
             ContainsSubstring("calls 'torch.FloatStorage', which is not allowed"));
  CHECK_THAT(refusal("\x80\2c__torch__.Evil\nrun\n)R."s), ContainsSubstring("not allowed"));
}

TEST_CASE("Pickle: malformed programs are refused with their reason") {
  CHECK_THAT(refusal(""), ContainsSubstring("truncated"));
  CHECK_THAT(refusal("."s), ContainsSubstring("ends with values left over"));
  CHECK_THAT(refusal("NN."s), ContainsSubstring("ends with values left over"));
  CHECK_THAT(refusal("N.N"s), ContainsSubstring("bytes follow"));
  CHECK_THAT(refusal("(N."s), ContainsSubstring("ends with values left over"));
  CHECK_THAT(refusal("R"s), ContainsSubstring("more values than there are"));
  CHECK_THAT(refusal("N(\x85"s), ContainsSubstring("more values than there are"));
  CHECK_THAT(refusal("t"s), ContainsSubstring("mark is missing"));
  CHECK_THAT(refusal("NNa"s), ContainsSubstring("not a list"));
  CHECK_THAT(refusal("NNNs"s), ContainsSubstring("not a dict"));
  CHECK_THAT(refusal("}(Nu"s), ContainsSubstring("key without a value"));
  CHECK_THAT(refusal("}]Ns"s), ContainsSubstring("a key that is a list or a dict"));
  CHECK_THAT(refusal("}}Ns"s), ContainsSubstring("a key that is a list or a dict"));
  CHECK_THAT(refusal("h\5"s), ContainsSubstring("has not stored"));
  CHECK_THAT(refusal("Nr\xff\xff\xff\xffj\xfe\xff\xff\xff"s), ContainsSubstring("has not stored"));
  CHECK_THAT(refusal("Iten\n."s), ContainsSubstring("invalid whole number"));
  CHECK_THAT(refusal("\x8b\xff\xff\xff\xff"s), ContainsSubstring("truncated"));
  CHECK_THAT(refusal("\x8e\xff\xff\xff\xff\xff\xff\xff\xff"s), ContainsSubstring("truncated"));
  CHECK_THAT(refusal("NN\x93"s), ContainsSubstring("a name that is not text"));
  CHECK_THAT(refusal("X\xff\xff\xff\xff"s), ContainsSubstring("truncated"));
  CHECK_THAT(refusal("NNb"s), ContainsSubstring("a state to something"));
  CHECK_THAT(refusal("NQ"s), ContainsSubstring("not a storage"));
  CHECK_THAT(refusal("\x80\x09"s), ContainsSubstring("protocol"));
  CHECK_THAT(refusal("i"s), ContainsSubstring("opcode 105 is not allowed") && ContainsSubstring("at byte 0"));
}

TEST_CASE("Pickle: a tensor with odd numbers is refused") {
  const auto tensor = [](const std::string& sizes, const std::string& strides, const std::string& offset) {
    return "\x80\2ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
           "0X\3\0\0\0cpuK\4tQ"s +
           offset + sizes + strides + "\x89}tR.";
  };
  CHECK(unpickle(tensor("K\2K\2\x86"s, "K\2K\1\x86"s, "K\0"s))->root.tensor().sizes.size() == 2);
  CHECK_THAT(refusal(tensor("K\2K\2\x86"s, "K\2\x85"s, "K\0"s)), ContainsSubstring("do not fit"));
  CHECK_THAT(refusal(tensor("J\xff\xff\xff\xff\x85"s, "K\2\x85"s, "K\0"s)), ContainsSubstring("do not fit"));
  CHECK_THAT(refusal(tensor("K\2\x85"s, "K\1\x85"s, "J\xff\xff\xff\xff"s)), ContainsSubstring("do not fit"));
  CHECK_THAT(refusal(tensor("N\x85"s, "K\1\x85"s, "K\0"s)), ContainsSubstring("do not fit"));
}

TEST_CASE("Pickle: any hashable value may be a key") {
  const auto pickle = unpickle("\x80\2}(\x88K\1NK\2G?\xf8\0\0\0\0\0\0K\3K\1X\1\0\0\0a\x86K\4u."s);
  const auto& items = pickle->root.items();
  REQUIRE(items.size() == 8);
  CHECK(items[0].boolean());
  CHECK(items[2].is(Kind::kNone));
  CHECK(items[4].real() == 1.5);
  CHECK(items[6].is(Kind::kTuple));
}

TEST_CASE("Pickle: integers of any size may stand among the values") {
  CHECK(unpickle("\x80\2\x8a\x09\0\0\0\0\0\0\0\x80\0."s)->root.is(Kind::kOtherValue));
}

// The call of torch._utils.`function` with the pickled `arguments`.
std::string call(const std::string& function, const std::string& arguments) {
  return "ctorch._utils\n" + function + "\n(" + arguments + "tR";
}

std::string storage(const std::string& type, const std::string& key = "0") {
  return "(X\7\0\0\0storagectorch\n"s + type + "\nX\1\0\0\0"s + key + "X\3\0\0\0cpuK\4tQ"s;
}

// {'weight': a tensor, 'odd': `item`}
StateDict state_with(const std::string& item) {
  const auto weight = call("_rebuild_tensor_v2", storage("FloatStorage") + "K\0K\4\x85K\1\x85\x89}"s);
  return find_state(unpickle("\x80\2}(X\6\0\0\0weight"s + weight + "X\3\0\0\0odd"s + item + "u.")->root);
}

TEST_CASE("Pickle: one odd item is named and the others are read") {
  const auto tensor = call("_rebuild_tensor_v2", storage("FloatStorage") + "K\0K\4\x85K\1\x85\x89}"s);
  const auto layout = "ctorch.serialization\n_get_layout\nX\20\0\0\0torch.sparse_coo\x85R"s;
  const std::pair<std::string, std::string> items[] = {
      {call("_rebuild_sparse_tensor", layout + "(" + tensor + tensor + "K\4\x85\x88t"),
       "sparse tensor (torch.sparse_coo)"},
      {call("_rebuild_qtensor",
            storage("QInt8Storage") + "K\0K\4\x85K\1\205ctorch\nper_tensor_affine\nK\1K\0\x87\x89}"s),
       "quantized"},
      {call("_rebuild_nested_tensor", tensor + tensor + tensor + tensor), "nested"},
      {call("_rebuild_meta_tensor_no_storage", "ctorch\nfloat32\nK\4\x85K\1\x85\x89"s), "meta"},
      {call("_rebuild_tensor_v3", storage("UntypedStorage") + "K\0K\4\x85K\1\x85\x89}ctorch\nbits8\n"s), "torch.bits8"},
      {call("_rebuild_tensor_v2", storage("FloatStorage") + "K\0K\4\x85K\1\x85\x89}}X\3\0\0\0new\x88s"s),
       "the mark 'new'"},
      {storage("FloatStorage"), "a storage"},
      {"](" + tensor + tensor + "e", "a list"},
      {"}N" + tensor + "s", "below a key that is neither text nor integer"},
  };
  for (const auto& [item, what] : items) {
    const auto state = state_with(item);
    CHECK(state.tensors.size() == 1);
    UNSCOPED_INFO(what);
    REQUIRE(state.skipped.size() == 1);
    CHECK_THAT(state.skipped.begin()->first, ContainsSubstring("odd"));
    CHECK_THAT(state.skipped.begin()->second, ContainsSubstring(what));
  }
  CHECK_THAT(state_with("capp\nConfig\n)\x81"s).skipped.at("odd"), ContainsSubstring("an object of 'app.Config'"));
  // No tensors: nobody is told.
  for (const auto& item :
       {"c__builtin__\ncomplex\nK\1K\2\x86R"s, "}(\x88K\1NK\2u"s, "ctorch\ndevice\nX\3\0\0\0cpu\x85R"s}) {
    CHECK(state_with(item).skipped.empty());
    CHECK(state_with(item).tensors.size() == 1);
  }
}

TEST_CASE("Pickle: conjugated and negated tensors have their own values") {
  const auto marked = [](const std::string& type, const std::string& marks) {
    const auto pickled = call("_rebuild_tensor_v2", storage(type) + "K\0K\2\x85K\1\x85\x89}"s + marks);
    return unpickle("\x80\2" + pickled + ".")->root.tensor();
  };
  const auto values = [](const std::vector<float>& from) {
    return std::string(reinterpret_cast<const char*>(from.data()), from.size() * sizeof(float));
  };
  const auto conj = marked("ComplexFloatStorage", "}X\4\0\0\0conj\x88s"s);
  CHECK_FALSE(is_plain(conj));
  CHECK(gather_elements(conj, values({1, 2, 3, -4})) == values({1, -2, 3, 4}));
  const auto neg = marked("FloatStorage", "}X\3\0\0\0neg\x88s"s);
  CHECK(gather_elements(neg, values({1, -2})) == values({-1, 2}));
  const auto both = marked("ComplexFloatStorage", "}X\3\0\0\0neg\x88sX\4\0\0\0conj\x88s"s);
  CHECK(gather_elements(both, values({1, 2, 3, -4})) == values({-1, 2, -3, -4}));
  CHECK(is_plain(marked("FloatStorage", "}X\3\0\0\0neg\x89s"s)));
  const auto integers = marked("ShortStorage", "}X\3\0\0\0neg\x88s"s);
  CHECK(gather_elements(integers, "\1\0\0\x80"s) == "\xff\xff\0\x80"s);
  CHECK_THROWS_WITH(marked("FloatStorage", "}X\4\0\0\0conj\x88s"s), ContainsSubstring("do not fit"));
}

TEST_CASE("Pickle: an expanded tensor is repeated but not without end") {
  TensorEntry expanded{.storage = "0", .dtype = "int8", .sizes = {2, 3, 2}, .strides = {0, 1, 0}};
  CHECK(gather_elements(expanded, "abc") == "aabbccaabbcc");
  CopyAllowance(100).spend(expanded);
  expanded.sizes = {int64_t{1} << 40, 3, 2};
  CHECK_THROWS_WITH(CopyAllowance(100).spend(expanded), ContainsSubstring("save it with .contiguous()"));
}

// A list that is remembered under `number` and used again: [1], [1].
std::string remembered(const std::string& put, const std::string& get) {
  return "\x80\2]"s + put + "K\1a" + get + "\x86.";
}

TEST_CASE("Pickle: what is remembered may have any numbers") {
  const auto [put, get] = GENERATE(std::pair("q\0"s, "h\0"s), std::pair("q\1"s, "h\1"s), std::pair("q\xff"s, "h\xff"s),
                                   std::pair("r\1\0\0\0"s, "h\1"s),
                                   std::pair("r\xff\xff\xff\xff"s, "j\xff\xff\xff\xff"s), std::pair("\x94"s, "h\0"s));
  const auto pickle = unpickle(remembered(put, get));
  const auto& pair = pickle->root.items();
  CHECK(&pair.at(0).items() == &pair.at(1).items());
  CHECK_THAT(refusal(remembered(put, "h\7")), ContainsSubstring("has not stored"));
}

TEST_CASE("Pickle: numbers of what is remembered may have gaps, be given twice and in any order") {
  Memo memo;
  std::map<uint64_t, int64_t> expected;
  uint64_t number = 1;
  for (int64_t i = 0; i < 5000; ++i) {
    number = (number * 6364136223846793005U + 1442695040888963407U);
    const auto key = i % 3 == 0 ? static_cast<uint64_t>(i) : (number >> 33) % (i % 3 == 1 ? 6000 : uint64_t{1} << 32);
    memo.put(key, Value(i));
    expected[key] = i;
  }
  for (const auto& [key, value] : expected) {
    REQUIRE(memo.get(key) != nullptr);
    CHECK(memo.get(key)->integer() == value);
  }
  for (uint64_t key = 0; key < 7000; ++key) CHECK((memo.get(key) != nullptr) == (expected.count(key) != 0));
  memo.append(Value(true));  // under their count, as Python's unpickler does
  CHECK(memo.get(expected.size())->is(Kind::kBool));
}

TEST_CASE("Pickle: the opcodes of protocols 3 to 5 and Python 2's whole numbers are read") {
  const auto text = [](const std::string& bytes) { return unpickle(bytes)->root.text(); };
  CHECK(text("\x80\4\x95\x05\0\0\0\0\0\0\0\x8c\2ab."s) == "ab");
  CHECK(text("\x8d\2\0\0\0\0\0\0\0ab."s) == "ab");
  for (const auto& bytes : {"C\2ab."s, "B\2\0\0\0ab."s, "\x8e\2\0\0\0\0\0\0\0ab."s, "\x96\2\0\0\0\0\0\0\0ab."s}) {
    CHECK(unpickle(bytes)->root.is(Kind::kBytes));
    CHECK(text(bytes) == "ab");
  }
  for (const auto& bytes : {"U\3\xc3\xa4x."s, "T\3\0\0\0\xc3\xa4x."s}) {
    CHECK(unpickle(bytes)->root.is(Kind::kText));
    CHECK(text(bytes) == "\xc3\xa4x");
  }
  CHECK(unpickle("U\1\xe4."s)->root.is(Kind::kBytes));
  CHECK(unpickle("\x8f(K\1K\2\x90."s)->root.items().size() == 2);
  CHECK(unpickle("(K\1K\2\x91."s)->root.is_hashable());
  CHECK(unpickle("\x8c\x0b"
                 "collections\x8c\x0bOrderedDict\x93)R."s)
            ->root.is(Kind::kDict));
  CHECK(unpickle("I-9000000000\n."s)->root.integer() == -9'000'000'000);
  CHECK(unpickle("I01\n."s)->root.boolean());
  CHECK(unpickle("\x8b\2\0\0\0\xff\xff."s)->root.integer() == -1);
}

TEST_CASE("Pickle: shared containers stay shared") {
  // l = [1]; (l, l)
  const auto pickle = unpickle("\x80\2]q\0K\1ah\0\x86."s);
  const auto& pair = pickle->root.items();
  CHECK(&pair[0].items() == &pair[1].items());
  CHECK(pair[0].items().at(0).integer() == 1);
}

TEST_CASE("Pickle: the stride of an axis of one element counts for nothing") {
  const TensorEntry turned{
      .storage = "0", .dtype = "int8", .sizes = {2, 1, 2}, .strides = {1, std::numeric_limits<int64_t>::max(), 2}};
  CHECK(gather_elements(turned, "abcd") == "acbd");
}

}  // namespace
}  // namespace ddp::pt
