// NumPy's files and files of tokens: what is read and written, and the one clear line for everything else.
#include <ATen/ATen.h>

#include <cstring>
#include <stdexcept>

#include <ddprun/data/arrays.h>
#include <ddprun/data/byte_source.h>

#include "tests/data/gzip.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;
using test::ElementsAre;

std::string npy(const std::string& header, const std::string& elements, char version = 1) {
  std::string text("\x93NUMPY", 6);
  text += {version, '\0', static_cast<char>(header.size()), static_cast<char>(header.size() >> 8)};
  if (version > 1) text += {'\0', '\0'};
  return text + header + elements;
}

template <typename Value>
std::string raw(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

class ArraysTest {
 protected:
  std::filesystem::path path(const std::string& name = "file") const { return folder_.path() / name; }
  std::filesystem::path file(const std::string& content, const std::string& name = "file") const {
    test::write_file(path(name), content);
    return path(name);
  }
  template <typename Action>
  void refused(const Action& action, const std::string& problem) const {
    CHECK_THROWS_MATCHES(action(), DataError,
                         MessageMatches(StartsWith(folder_.path().string()) && ContainsSubstring(problem)));
  }
  void refused_content(const std::string& content, const std::string& problem) const {
    refused([&] { load_npy(file(content)); }, problem);
    if (problem.find("bool") == std::string::npos) refused([&] { map_npy(file(content)); }, problem.substr(0, 8));
  }

 private:
  test::TemporaryFolder folder_;
};

constexpr const char* kFloats = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";

TEST_CASE_METHOD(ArraysTest, "Arrays: a header may be written in every way that Python's literals allow") {
  const std::string elements = raw<float>({1.5F, -2.0F});
  for (const char* header : {kFloats, R"({"shape":(2,),"fortran_order":True,"descr":"=f4"})",
                             "{ 'descr':'f4','fortran_order':False,'shape':(2L,)  }  ",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2,),}"}) {
    INFO(header);
    for (const char version : {1, 2, 3}) {
      CHECK(load_npy(file(npy(header, elements, version))).flatten().equal(at::tensor({1.5F, -2.0F})));
    }
  }
  CHECK(load_npy(file(test::gzip(npy(kFloats, elements)))).equal(at::tensor({1.5F, -2.0F})));
  CHECK(load_npy(file(npy(kFloats, elements + "more"))).numel() == 2);  // numpy.save may be called again on one file
}

TEST_CASE_METHOD(ArraysTest, "Arrays: other and damaged files are refused in one line") {
  refused_content("", "");
  refused_content("not an array at all", "expected a .npy file");
  refused_content(npy(kFloats, raw<float>({1})), "");
  refused_content(npy(kFloats, "", 4), "got 4.0");
  refused_content(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2), }", ""),
                  "expected a header as NumPy writes it");
  refused_content(npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }", ""),
                  "expected a header as NumPy writes it");
  refused_content(npy("{'descr': '<f4', 'fortran_order': False}", ""), "expected a header as NumPy writes it");
  refused_content(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'descr': '<f4'}", ""),
                  "expected a header");
  refused_content(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", ""), "expected a header");
  refused_content(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", ""),
                  "expected a header");
  refused_content(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", ""), "pickled Python objects");
  refused_content(npy("{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", ""), "NumPy's type '<U3'");
  refused_content(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", ""),
                  "structures with named fields");
  refused_content(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,)}", ""),
                  "more than 2^63 bytes");
  refused_content(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4611686018427387904, 9)}", ""),
                  "more than 2^63");
  refused_content(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}", ""), "");
  refused_content(npy("{'descr': '<f4\n\x1b[31m", ""), "expected a header");
  std::string claims("\x93NUMPY\2\0\xff\xff\xff\x7f", 12);
  refused_content(claims, "claims 2147483647 bytes");
  refused([&] { load_npy(path("none")); }, "cannot be opened");
  CHECK_THROWS_AS(load_npy("/dev/zero"), DataError);
}

TEST_CASE_METHOD(ArraysTest, "Arrays: bools other than 0 and 1 become 1, and are not mapped") {
  const char* header = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}";
  CHECK(load_npy(file(npy(header, std::string("\0\1\7", 3)))).equal(at::tensor({0, 1, 1}).to(at::kBool)));
  refused([&] { map_npy(path()); }, "bool values other than 0 and 1");
  CHECK(map_npy(file(npy(header, std::string("\0\1\1", 3)))).equal(at::tensor({0, 1, 1}).to(at::kBool)));
}

TEST_CASE_METHOD(ArraysTest, "Arrays: a mapped array shares the file's pages and does not change the file") {
  const at::Tensor values = at::arange(12, at::kDouble).view({3, 4});
  save_npy(path(), values);
  const std::string before = test::read_file(path());
  at::Tensor mapped = map_npy(path());
  CHECK(mapped.equal(values));
  mapped.fill_(7);
  CHECK(mapped.equal(at::full({3, 4}, 7, at::kDouble)));
  CHECK(test::read_file(path()) == before);
  CHECK(map_npy(path()).equal(values));
}

TEST_CASE_METHOD(ArraysTest,
                 "Arrays: what is not contiguous is written in C's order, transposed matrices in Fortran's") {
  const at::Tensor values = at::arange(12, at::kInt).view({3, 4});
  save_npy(path(), values.t());
  CHECK_THAT(test::read_file(path()), ContainsSubstring("'fortran_order': True, 'shape': (4, 3), }"));
  const at::Tensor read = load_npy(path());
  CHECK(read.equal(values.t()));
  CHECK(read.strides() == at::IntArrayRef({1, 4}));
  save_npy(path(), values.slice(1, 0, 4, 2));
  CHECK_THAT(test::read_file(path()), ContainsSubstring("'fortran_order': False"));
  CHECK(load_npy(path()).equal(values.slice(1, 0, 4, 2)));
  save_npy(path(), at::complex(at::tensor({1.0F}), at::tensor({2.0F})).conj());
  CHECK(load_npy(path()).equal(at::complex(at::tensor({1.0F}), at::tensor({-2.0F}))));
}

TEST_CASE_METHOD(ArraysTest, "Arrays: a tensor that NumPy has not is refused, and the older file stays") {
  save_npy(path(), at::ones({2}));
  CHECK_THROWS_WITH(save_npy(path(), at::ones({2}, at::kBFloat16)), ContainsSubstring("BFloat16: convert it first"));
  CHECK_THROWS_AS(save_npy(path(), at::Tensor()), std::invalid_argument);
  CHECK_THROWS_AS(save_npy(path(), at::ones({2, 2}).to_sparse()), std::invalid_argument);
  CHECK_THROWS_AS(save_npz(path(), {{"x", at::ones({2})}, {"y", at::ones({2}, at::kBFloat16)}}), std::invalid_argument);
  CHECK(load_npy(path()).equal(at::ones({2})));
  refused([&] { save_npy(path("none/file"), at::ones({2})); }, "cannot be written");
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path().parent_path())) ++files;
  CHECK(files == 1);
}

TEST_CASE_METHOD(ArraysTest, "Archives: arrays by name, mapped where they are stored as they are") {
  const std::map<std::string, at::Tensor> tensors = {{"x", at::arange(6, at::kByte).view({2, 3})},
                                                     {"y/z", at::ones({}, at::kByte)}};
  for (const bool compressed : {false, true}) {
    save_npz(path(), tensors, compressed);
    const NpzFile archive(path());
    CHECK_THAT(archive.names(), ElementsAre("x", "y/z"));
    CHECK(archive.contains("x"));
    CHECK_FALSE(archive.contains("x.npy"));
    for (const auto& [name, tensor] : tensors) {
      CHECK(archive.at(name).equal(tensor));
      if (!compressed) CHECK(archive.map(name).equal(tensor));
    }
    if (compressed) refused([&] { archive.map("x"); }, "is compressed");
    CHECK_THROWS_MATCHES(archive.at("w"), std::out_of_range, MessageMatches(ContainsSubstring("only: x, y/z")));
    CHECK(load_npz(path()).size() == 2);
    const std::string once = test::read_file(path());
    save_npz(path(), tensors, compressed);
    CHECK(test::read_file(path()) == once);
    // Any flipped byte of an array is noticed, if not by the packing then by the checksum.
    std::string damaged = once;
    damaged[damaged.find("NUMPY") == std::string::npos ? 60 : damaged.find("NUMPY") + 130] ^= 4;
    file(damaged);
    refused([&] { load_npz(path()); }, compressed ? "" : "damaged");
    for (const size_t size : {size_t{0}, size_t{10}, once.size() / 2, once.size() - 1}) {
      file(once.substr(0, size));
      refused([&] { load_npz(path()); }, "");
    }
  }
  CHECK_THROWS_AS(save_npz(path(), {{"", at::ones({})}}), std::invalid_argument);
}

TEST_CASE_METHOD(ArraysTest, "Tokens: windows, strides and targets") {
  const auto tokens = file(raw<uint16_t>({0, 1, 2, 3, 65535, 5, 6, 7, 8}));
  const Tokens windows(tokens, {.length = 4});
  CHECK(windows.size() == 2);
  CHECK(windows.tokens() == 9);
  CHECK(windows.documents() == 1);
  const Batch batch = windows.get_batch(std::vector<int64_t>{1, 0});
  CHECK(batch.data.equal(at::tensor({65535, 5, 6, 7, 0, 1, 2, 3}, at::kLong).view({2, 4})));
  CHECK(batch.target.equal(at::tensor({5, 6, 7, 8, 1, 2, 3, 65535}, at::kLong).view({2, 4})));
  CHECK(Tokens(tokens, {.length = 4, .stride = 1}).size() == 5);
  CHECK(Tokens(tokens, {.length = 8}).size() == 1);
  refused([&] { Tokens(tokens, {.length = 9}); }, "its 9 tokens are too few for a window of 9");
  CHECK_THROWS_AS(windows.get_batch(std::vector<int64_t>{2}), std::out_of_range);
  CHECK_THROWS_AS(windows.get_batch(std::vector<int64_t>{-1}), std::out_of_range);
  CHECK_THROWS_AS(Tokens(tokens, {.length = 0}), std::invalid_argument);
  for (const int64_t end : {-1, 65'536}) {  // no token of the file can be that
    CHECK_THROWS_AS(Tokens(tokens, {.length = 2, .document_end = end}), std::invalid_argument);
  }
  refused([&] { Tokens(tokens, {.length = 2, .type = TokenType::kUint32}); }, "expected whole tokens of 4 bytes");
  const Tokens checked(tokens, {.length = 2, .vocabulary = 1000});
  CHECK(checked.get_batch(std::vector<int64_t>{0}).data.size(1) == 2);
  refused([&] { checked.get_batch(std::vector<int64_t>{1}); }, "token 4 is 65535, expected 0 to 999");
}

TEST_CASE_METHOD(ArraysTest, "Tokens: a sample stays in its document where that is asked for") {
  const auto tokens = file(raw<uint32_t>({1, 2, 3, 9, 4, 9, 5, 6, 7}));
  const TokensOptions options{
      .length = 2, .stride = 1, .type = TokenType::kUint32, .cross_documents = false, .document_end = 9};
  const Tokens windows(tokens, options);
  CHECK(windows.documents() == 3);
  CHECK(windows.size() == 3);  // 1 2, 2 3 and 5 6: the document of 4 and 9 has none
  CHECK(windows.get_batch(std::vector<int64_t>{2, 1}).data.equal(at::tensor({5, 6, 2, 3}, at::kLong).view({2, 2})));
}

TEST_CASE_METHOD(ArraysTest, "Tokens: a damaged index is refused in one line") {
  const std::string head("MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18);
  const auto index = [&](const std::vector<int32_t>& lengths, const std::vector<int64_t>& pointers,
                         const std::vector<int64_t>& documents) {
    return head + raw<uint64_t>({lengths.size(), documents.size()}) + raw(lengths) + raw(pointers) + raw(documents);
  };
  file(raw<uint16_t>({1, 2, 3, 4, 5}), "t.bin");
  const auto open = [&](const std::string& content) {
    return Tokens(file(content, "t.idx"), {.length = 1, .cross_documents = false});
  };
  CHECK(open(index({2, 3}, {0, 4}, {0, 1, 2})).size() == 3);
  CHECK(open(index({2, 3}, {0, 4}, {0})).documents() == 1);
  refused([&] { open("MMID"); }, "expected a Megatron-LM index");
  refused([&] { open(head); }, "truncated");
  refused([&] { open(index({2, 3}, {0, 6}, {0, 1, 2})); }, "sequence 1 does not begin where the one before it ends");
  refused([&] { open(index({2, -3}, {0, 4}, {0, 1, 2})); }, "sequence 1 does not");
  refused([&] { open(index({2, 3}, {0, 4}, {0, 2, 1})); }, "document 2 begins at sequence 1");
  refused([&] { open(index({2, 3}, {0, 4}, {0, 3})); }, "document 1 begins at sequence 3");
  refused([&] { open(index({2, 4}, {0, 4}, {0, 1, 2})); }, "expected the 6 tokens of its index, got 10 bytes");
  std::string floats = index({2}, {0}, {0, 1});
  floats[17] = 7;
  refused([&] { open(floats); }, "got type 7");
  const std::string many = head + raw<uint64_t>({uint64_t{1} << 62, 1});
  refused([&] { open(many); }, "expected 4611686018427387904 numbers of 4 bytes in the rest of the index, got 0 bytes");
  const auto whole = index({2, 3}, {0, 4}, {0, 1, 2});
  refused([&] { open(whole.substr(0, whole.size() - 1)); },
          "expected 3 numbers of 8 bytes in the rest of the index, got 23");
}

}  // namespace
}  // namespace ddp
