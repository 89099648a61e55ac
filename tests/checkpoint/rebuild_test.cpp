// What a pickle's functions make of their arguments: values, storages and tensors, and what they refuse.
#include "checkpoint/pt/rebuild.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/format_error.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::pt {
namespace {

using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;

constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

class Rebuild {
 protected:
  Value whole(int64_t number) { return Value(number); }
  Value tuple(std::vector<Value> values) { return pickle_.container(Kind::kTuple, std::move(values)); }
  Value list(std::vector<Value> values) { return pickle_.container(Kind::kList, std::move(values)); }
  Value dict(std::vector<Value> values) { return pickle_.container(Kind::kDict, std::move(values)); }
  Value text(const std::string& value) { return pickle_.text(value); }
  Value numbers(const std::vector<int64_t>& values) {
    std::vector<Value> items(values.begin(), values.end());
    return tuple(std::move(items));
  }
  Value storage_id(const std::string& type = "FloatStorage", const std::string& key = "0", int64_t elements = 4) {
    return tuple({text("storage"), pickle_.global("torch." + type), text(key), text("cpu"), whole(elements)});
  }
  Value storage(const std::string& type = "FloatStorage", int64_t elements = 4) {
    return load_storage(pickle_, storage_id(type, "0", elements));
  }
  Value call(const std::string& function, std::vector<Value> arguments) {
    return call_global(pickle_, function, tuple(std::move(arguments)));
  }
  std::vector<Value> v2(const Value& storage, const Value& metadata = {}) {
    return {storage, whole(1), numbers({2}), numbers({1}), Value(false), dict({}), metadata};
  }
  // Refused as a call whose arguments do not fit.
  void does_not_fit(const std::string& function, std::vector<Value> arguments) {
    CHECK_THROWS_MATCHES(
        call(function, std::move(arguments)), FormatError,
        Catch::Matchers::MessageMatches(ContainsSubstring("'" + function + "' with arguments that do not fit")));
  }
  void no_storage(const Value& id) {
    CHECK_THROWS_MATCHES(
        load_storage(pickle_, id), FormatError,
        Catch::Matchers::MessageMatches(ContainsSubstring("refers to something that is not a storage")));
  }

  Pickle pickle_;
};

constexpr const char* kV1 = "torch._utils._rebuild_tensor";
constexpr const char* kV2 = "torch._utils._rebuild_tensor_v2";
constexpr const char* kV3 = "torch._utils._rebuild_tensor_v3";

TEST_CASE_METHOD(Rebuild, "Rebuild: a storage has the dtype of its class, and a key that may be bytes") {
  struct Case {
    const char* type;
    const char* dtype;
  };
  const auto [type, dtype] = GENERATE(values<Case>({{"DoubleStorage", "float64"},
                                                    {"FloatStorage", "float32"},
                                                    {"HalfStorage", "float16"},
                                                    {"BFloat16Storage", "bfloat16"},
                                                    {"LongStorage", "int64"},
                                                    {"IntStorage", "int32"},
                                                    {"ShortStorage", "int16"},
                                                    {"CharStorage", "int8"},
                                                    {"ByteStorage", "uint8"},
                                                    {"BoolStorage", "bool"},
                                                    {"ComplexFloatStorage", "complex64"},
                                                    {"ComplexDoubleStorage", "complex128"},
                                                    {"QInt8Storage", "qint8"},
                                                    {"QUInt4x2Storage", "quint4x2"},
                                                    {"UntypedStorage", ""}}));
  for (const std::string module : {"torch.", "torch.cuda.", "torch.storage."}) {
    CHECK(is_known_global(module + type));
    const auto id =
        tuple({pickle_.bytes("storage"), pickle_.global(module + type), pickle_.bytes("17"), Value(), whole(9)});
    const auto& made = load_storage(pickle_, id).storage();
    CHECK(made.key == "17");
    CHECK(made.dtype == dtype);
    CHECK(made.elements == 9);
    CHECK(made.view_begin == 0);
  }
}

TEST_CASE_METHOD(Rebuild, "Rebuild: what is no storage is refused") {
  const auto good = storage_id().items();
  CHECK_NOTHROW(load_storage(pickle_, tuple(good)));
  const auto with = [&](size_t i, const Value& value) {
    auto parts = good;
    parts[i] = value;
    return tuple(parts);
  };
  no_storage(Value());
  no_storage(list(good));
  no_storage(dict({}));
  no_storage(tuple({}));
  no_storage(tuple({good[0], good[1], good[2], good[3]}));
  no_storage(tuple({good[0], good[1], good[2], good[3], good[4], Value(), Value()}));
  no_storage(with(0, text("module")));
  no_storage(with(0, whole(0)));
  no_storage(with(1, text("torch.FloatStorage")));
  no_storage(with(1, pickle_.global("torch.float32")));
  no_storage(with(1, pickle_.global("torch.StringStorage")));
  no_storage(with(2, whole(0)));
  no_storage(with(2, Value()));
  for (const auto& count : {Value(), whole(-1), whole(kMin), Value(2.0), Value(true), text("4")})
    no_storage(with(4, count));
}

TEST_CASE_METHOD(Rebuild, "Rebuild: a view of a storage lies within it") {
  const auto viewed = [&](const Value& view, int64_t elements = 10) {
    auto parts = storage_id("FloatStorage", "0", elements).items();
    parts.push_back(view);
    return tuple(parts);
  };
  const auto view = [&](int64_t begin, int64_t size) { return tuple({text("v"), whole(begin), whole(size)}); };
  CHECK(load_storage(pickle_, viewed(Value())).storage().view_begin == 0);
  for (const int64_t begin : {0, 3, 10}) {
    CHECK(load_storage(pickle_, viewed(view(begin, 10 - begin))).storage().view_begin == begin);
    no_storage(viewed(view(begin, 11 - begin)));
  }
  no_storage(viewed(view(-1, 2)));
  no_storage(viewed(view(2, -1)));
  no_storage(viewed(view(11, 0)));
  no_storage(viewed(view(kMaxElements, kMaxElements)));
  no_storage(viewed(view(1, kMaxElements), kMaxElements));
  no_storage(viewed(tuple({text("v"), whole(0)})));
  no_storage(viewed(text("v")));
  UNSCOPED_INFO("a tensor's place is counted from the view's beginning");
  const auto in_view = load_storage(pickle_, viewed(view(3, 7)));
  CHECK(call(kV2, v2(in_view)).tensor().offset == 4);
  const auto far = load_storage(pickle_, viewed(view(kMaxElements, 0), kMaxElements));
  does_not_fit(kV2, v2(far));
}

TEST_CASE_METHOD(Rebuild, "Rebuild: a tensor is a place in a storage with sizes and strides") {
  for (const auto* function : {kV1, kV2}) {
    auto arguments =
        std::vector{storage("HalfStorage"), whole(3), numbers({2, 0, 5}), list({whole(9), whole(0), whole(1)})};
    const auto& tensor = call(function, arguments).tensor();
    CHECK(tensor.storage == "0");
    CHECK(tensor.dtype == "float16");
    CHECK(tensor.offset == 3);
    CHECK_THAT(tensor.sizes, ElementsAre(2, 0, 5));
    CHECK_THAT(tensor.strides, ElementsAre(9, 0, 1));
    CHECK_FALSE((tensor.is_conj || tensor.is_neg));
  }
  const auto scalar = call(kV2, {storage(), whole(0), numbers({}), numbers({})});
  CHECK(scalar.tensor().sizes.empty());
  CHECK(call(kV2, {storage(), whole(kMaxElements), numbers({}), numbers({})}).tensor().offset == kMaxElements);
}

TEST_CASE_METHOD(Rebuild, "Rebuild: sizes, strides and places that no tensor has are refused") {
  const std::vector<int64_t> many(65, 1);
  for (const auto* function : {kV1, kV2}) {
    const auto refused = [&](const Value& storage, const Value& offset, const Value& sizes, const Value& strides) {
      does_not_fit(function, {storage, offset, sizes, strides});
    };
    const auto good = storage();
    refused(Value(), whole(0), numbers({}), numbers({}));
    refused(text("0"), whole(0), numbers({}), numbers({}));
    refused(call(kV2, v2(good)), whole(0), numbers({}), numbers({}));
    refused(good, whole(-1), numbers({}), numbers({}));
    refused(good, Value(0.0), numbers({}), numbers({}));
    refused(good, Value(), numbers({}), numbers({}));
    refused(good, whole(0), whole(2), numbers({1}));
    refused(good, whole(0), numbers({2}), numbers({}));
    refused(good, whole(0), numbers({}), numbers({1}));
    refused(good, whole(0), numbers({2, 3}), numbers({1}));
    refused(good, whole(0), numbers({-1}), numbers({1}));
    refused(good, whole(0), numbers({2}), numbers({-1}));
    refused(good, whole(0), numbers({kMin}), numbers({kMin}));
    refused(good, whole(0), tuple({Value(2.0)}), numbers({1}));
    refused(good, whole(0), tuple({Value(true)}), numbers({1}));
    refused(good, whole(0), numbers(many), numbers(many));
    does_not_fit(function, {good, whole(0), numbers({})});
    does_not_fit(function, {});
  }
  const std::vector<int64_t> most(64, 1);
  CHECK(call(kV2, {storage(), whole(0), numbers(most), numbers(most)}).tensor().sizes.size() == 64);
  UNSCOPED_INFO("the first form knows no more than the place");
  does_not_fit(kV1, v2(storage()));
  UNSCOPED_INFO("a storage that counts bytes says no dtype");
  does_not_fit(kV2, v2(storage("UntypedStorage")));
}

TEST_CASE_METHOD(Rebuild, "Rebuild: the third form names the dtype itself, whatever the storage's is") {
  const auto v3 = [&](const Value& dtype, const std::string& type = "UntypedStorage") {
    return std::vector{storage(type, 16), whole(1), numbers({2}), numbers({1}), Value(false), dict({}), dtype};
  };
  for (const auto* name : {"uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e8m0fnu", "complex32", "float32"}) {
    CHECK(call(kV3, v3(pickle_.global("torch."s + name))).tensor().dtype == name);
    CHECK(call(kV3, v3(pickle_.global("torch."s + name), "ByteStorage")).tensor().dtype == name);
  }
  CHECK(call(kV3, v3(pickle_.global("torch.bits8"))).text() == "a tensor of the dtype torch.bits8");
  does_not_fit(kV3, v3(pickle_.global("torch.FloatStorage")));
  does_not_fit(kV3, v3(pickle_.global("float32")));
  does_not_fit(kV3, v3(text("torch.float32")));
  does_not_fit(kV3, v3(Value()));
  auto cut = v3(Value());
  cut.pop_back();
  does_not_fit(kV3, cut);
}

TEST_CASE_METHOD(Rebuild, "Rebuild: marks turn a tensor's values, and fit its dtype") {
  const auto marked = [&](const char* type, std::vector<Value> marks) {
    return call(kV2, v2(storage(type), dict(std::move(marks))));
  };
  const Value yes(true), no(false);
  CHECK(marked("ComplexFloatStorage", {text("conj"), yes}).tensor().is_conj);
  CHECK_FALSE(marked("FloatStorage", {text("conj"), no}).tensor().is_conj);
  const auto both = marked("ComplexDoubleStorage", {text("conj"), yes, text("neg"), yes});
  CHECK((both.tensor().is_conj && both.tensor().is_neg));
  UNSCOPED_INFO("of equal keys the last counts");
  CHECK_FALSE(marked("ComplexFloatStorage", {text("conj"), yes, text("conj"), no}).tensor().is_conj);
  CHECK(marked("BoolStorage", {text("neg"), yes}).text() == "a negated tensor of the dtype torch.bool");
  CHECK_THAT(marked("FloatStorage", {text("later"), yes}).text(), ContainsSubstring("the mark 'later'"));
  CHECK(marked("QInt8Storage", {}).is(Kind::kOtherTensor));
  const auto bad = [&](const char* type, const Value& metadata) { does_not_fit(kV2, v2(storage(type), metadata)); };
  bad("FloatStorage", dict({text("conj"), yes}));
  bad("ComplexFloatStorage", dict({text("conj"), whole(1)}));
  bad("ComplexFloatStorage", dict({whole(1), yes}));
  bad("ComplexFloatStorage", list({}));
  bad("ComplexFloatStorage", text("conj"));
}

TEST_CASE_METHOD(Rebuild, "Rebuild: what wraps a tensor is the tensor") {
  const auto tensor = call(kV2, v2(storage()));
  const auto is_it = [&](const Value& value) { return value.is(Kind::kTensor) && &value.tensor() == &tensor.tensor(); };
  for (const auto* function : {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state",
                               "torch.nn.parameter.Parameter", "torch.jit._pickle.restore_type_tag"}) {
    CHECK(is_it(call(function, {tensor, Value(true), dict({})})));
    does_not_fit(function, {});
  }
  const auto* v2_by_type = "torch._tensor._rebuild_from_type_v2";
  CHECK(call(v2_by_type, {pickle_.global(kV2), Value(), tuple(v2(storage())), dict({})}).is(Kind::kTensor));
  does_not_fit(v2_by_type, {pickle_.global(v2_by_type), Value(), tuple({})});
  does_not_fit(v2_by_type, {text(kV2), Value(), tuple(v2(storage()))});
  does_not_fit(v2_by_type, {pickle_.global(kV2), Value()});
  does_not_fit(kV2, {});
  const auto* from_cpu = "torch._utils._rebuild_device_tensor_from_cpu_tensor";
  CHECK(is_it(call(from_cpu, {tensor, pickle_.global("torch.float32"), text("xla:0"), Value(false)})));
  CHECK_THAT(call(from_cpu, {tensor, pickle_.global("torch.float16"), text("xla:0"), Value(false)}).text(),
             ContainsSubstring("converted it to torch.float16"));
  does_not_fit(from_cpu, {text("0"), pickle_.global("torch.float32")});
  does_not_fit(from_cpu, {tensor, text("torch.float32")});
  does_not_fit(from_cpu, {tensor});
}

TEST_CASE_METHOD(Rebuild, "Rebuild: tensors of other kinds are named, and their storages stay known") {
  struct Case {
    const char* function;
    const char* what;
  };
  const auto [function, what] = GENERATE(values<Case>({
      {"torch._utils._rebuild_qtensor", "a quantized tensor"},
      {"torch._utils._rebuild_nested_tensor", "a nested tensor"},
      {"torch.nested._internal.nested_tensor._rebuild_njt", "a nested tensor"},
      {"torch._utils._rebuild_meta_tensor_no_storage", "a tensor of the meta device"},
      {"torch._utils._rebuild_device_tensor_from_numpy", "a tensor that is a numpy array"},
      {"torch._utils._rebuild_wrapper_subclass", "a tensor of a class of its own"},
  }));
  const auto value = call(function, {storage()});
  REQUIRE(value.is(Kind::kOtherTensor));
  CHECK_THAT(value.text(), Catch::Matchers::StartsWith(what));
  CHECK(pickle_.storages().size() == 1);
}

TEST_CASE_METHOD(Rebuild, "Rebuild: a sparse tensor says which layout it has") {
  const auto layout = call("torch.serialization._get_layout", {text("torch.sparse_csr")});
  const auto value = call("torch._utils._rebuild_sparse_tensor", {layout, tuple({})});
  REQUIRE(value.is(Kind::kOtherTensor));
  CHECK(value.text() == "a sparse tensor (torch.sparse_csr); save it with .to_dense()");
  does_not_fit("torch._utils._rebuild_sparse_tensor", {text("torch.sparse_csr"), tuple({})});
  does_not_fit("torch._utils._rebuild_sparse_tensor", {layout, list({})});
  does_not_fit("torch._utils._rebuild_sparse_tensor", {layout});
  does_not_fit("torch.serialization._get_layout", {whole(1)});
  does_not_fit("torch.serialization._get_layout", {});
}

TEST_CASE_METHOD(Rebuild, "Rebuild: dicts of all kinds hold their pairs in order") {
  const auto* ordered = "collections.OrderedDict";
  CHECK(call(ordered, {}).items().empty());
  const auto pairs = list({tuple({text("b"), whole(1)}), list({text("a"), whole(2)})});
  const auto made = call(ordered, {pairs});
  REQUIRE(made.is(Kind::kDict));
  REQUIRE(made.items().size() == 4);
  CHECK(made.items()[0].text() == "b");
  CHECK(made.find("a")->integer() == 2);
  const auto from = dict({text("x"), whole(3)});
  const auto counter = call("collections.Counter", {from});
  CHECK(counter.find("x")->integer() == 3);
  UNSCOPED_INFO("it is a copy");
  CHECK(&counter.items() != &from.items());
  does_not_fit(ordered, {whole(1)});
  does_not_fit(ordered, {list({}), list({})});
  does_not_fit(ordered, {list({text("ab")})});
  does_not_fit(ordered, {list({tuple({text("a")})})});
  does_not_fit(ordered, {list({tuple({list({}), whole(1)})})});
}

TEST_CASE_METHOD(Rebuild, "Rebuild: bytes and byte arrays are their bytes in every protocol") {
  const auto* encode = "_codecs.encode";
  CHECK(call(encode, {text("a\xc3\xbf\0"s), text("latin1")}).text() == "a\xff\0"s);
  CHECK(call(encode, {text(""), text("latin1")}).is(Kind::kBytes));
  for (const std::string array : {"builtins.bytearray", "__builtin__.bytearray"}) {
    UNSCOPED_INFO("protocol 2 writes text, 3 bytes, and both nothing for an empty one");
    const auto high = call(array, {text("\xc2\x80\xc3\xbf"), text("latin-1")});
    CHECK(high.is(Kind::kBytes));
    CHECK(high.text() == "\x80\xff");
    CHECK(call(array, {pickle_.bytes("\x80\xff")}).text() == "\x80\xff");
    CHECK(call(array, {}).is(Kind::kBytes));
    CHECK(call(array, {}).text().empty());
    does_not_fit(array, {whole(int64_t{1} << 40)});
    does_not_fit(array, {text("a")});
    does_not_fit(array, {text("a"), text("utf-8")});
    does_not_fit(array, {list({whole(1)})});
  }
  for (const auto* bad : {"\xc4\x80", "\xc3", "\xc3\x41", "\xff"}) does_not_fit(encode, {text(bad), text("latin1")});
  does_not_fit(encode, {text("a"), text("ascii")});
  does_not_fit(encode, {pickle_.bytes("a"), text("latin1")});
  does_not_fit(encode, {text("a")});
}

TEST_CASE_METHOD(Rebuild, "Rebuild: lists of one type and sets are their items") {
  for (const auto* function : {"torch.Size", "builtins.set", "__builtin__.set", "torch.jit._pickle.build_intlist",
                               "torch.jit._pickle.build_doublelist", "torch.jit._pickle.build_boollist",
                               "torch.jit._pickle.build_tensorlist"}) {
    CHECK(call(function, {list({whole(1), whole(2)})}).items().size() == 2);
    CHECK(call(function, {tuple({})}).items().empty());
    does_not_fit(function, {whole(3)});
    does_not_fit(function, {});
  }
  for (const auto* function : {"torch.device", "builtins.complex", "__builtin__.complex"}) {
    CHECK(call(function, {text("any")}).is(Kind::kOtherValue));
  }
}

TEST_CASE_METHOD(Rebuild, "Rebuild: a known name that is not a function is not called, and arguments are a tuple") {
  const auto* bad =
      GENERATE("torch.FloatStorage", "torch.float32", "torch.Tensor", "torch.storage.TypedStorage", "__torch__.Net");
  CHECK_THROWS_WITH(call(bad, {}), "the pickle calls '" + std::string(bad) + "', which is not allowed");
  CHECK_THROWS_WITH(call_global(pickle_, kV2, list(v2(storage()))), ContainsSubstring("do not fit"));
}

TEST_CASE_METHOD(Rebuild, "Rebuild: what an unknown function makes is not a value, and is named") {
  const std::string function = GENERATE("os.system", "builtins.eval", "numpy.core.multiarray.scalar", "", ".",
                                        "torch._utils._rebuild_tensor_v2 ", "Torch.Size");
  for (const auto& arguments : {tuple({}), tuple({text("ls")}), Value(), dict({})}) {
    const auto made = call_global(pickle_, function, arguments);
    REQUIRE(made.is(Kind::kForeign));
    CHECK(made.text() == "an object of '" + function + "', which is neither a tensor nor a plain value");
  }
  UNSCOPED_INFO("a storage becomes a tensor, without which the file is not the same");
  CHECK_THROWS_WITH(call(function, {storage()}), "the pickle calls '" + function + "', which is not allowed");
}

TEST_CASE_METHOD(Rebuild, "Rebuild: an object that Python's copyreg makes is named by its class") {
  const auto* function = GENERATE("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__");
  CHECK_THAT(call(function, {pickle_.global("app.Config"), pickle_.global("builtins.object"), Value()}).text(),
             ContainsSubstring("an object of 'app.Config'"));
  CHECK_THAT(call(function, {}).text(), ContainsSubstring(function));
  CHECK_THAT(call(function, {text("app.Config")}).text(), ContainsSubstring(function));
}

TEST_CASE_METHOD(Rebuild, "Rebuild: a defaultdict is a dict, whatever makes its values") {
  CHECK(call("collections.defaultdict", {}).is(Kind::kDict));
  CHECK(call("collections.defaultdict", {pickle_.global("builtins.list")}).items().empty());
  does_not_fit("collections.defaultdict", {Value(), dict({})});
}

TEST_CASE_METHOD(Rebuild,
                 "Rebuild: the class of a module that was saved as a whole is neither a storage nor an error") {
  const auto made =
      load_storage(pickle_, tuple({text("module"), pickle_.global("app.Net"), text("net.py"), text("class Net: ...")}));
  REQUIRE(made.is(Kind::kForeign));
  CHECK_THAT(made.text(), ContainsSubstring("an object of 'app.Net'"));
  no_storage(tuple({text("module"), text("app.Net"), text("net.py"), text("")}));
}

TEST_CASE("Rebuild: names that are known are those of tensors and plain values") {
  for (const auto* name :
       {"torch.float32", "torch.uint7", "torch.qint8", "torch.bits1x8", "torch.Tensor", "torch.cuda.HalfStorage",
        "torch.storage.UntypedStorage", "torch.per_channel_affine", "__torch__.Net.Layer"}) {
    INFO(name);
    CHECK(is_known_global(name));
  }
  for (const auto* name :
       {"torch.cuda.float32", "torch.storage.float32", "torch.float", "torch.string", "torch.StringStorage",
        "numpy.float32", "__torch__", "torch.cuda.", "torch.", "float32", "torch.hub.load"}) {
    INFO(name);
    CHECK_FALSE(is_known_global(name));
  }
}

}  // namespace
}  // namespace ddp::pt
