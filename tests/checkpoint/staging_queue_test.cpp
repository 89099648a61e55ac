// Tensors that one thread copies into a small queue while another takes their bytes out.
#include "checkpoint/staging_queue.h"

#include <ATen/ops/complex.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scalar_tensor.h>

#include <future>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors_bytes.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp {
namespace {

using Files = std::map<std::string, std::string>;

Files take_all(StagingQueue& queue) {
  Files files;
  std::string* file = nullptr;
  while (const auto item = queue.next()) {
    if (item->file) file = &files[*item->file];
    file->append(item->bytes);
  }
  return files;
}

std::string elements_of(const at::Tensor& tensor) {
  TextSink sink;
  write_elements(sink, tensor);
  return sink.text;
}

// Contiguous or not, small, large, empty, of a row that is larger than a block, conjugated.
std::vector<at::Tensor> various_tensors() {
  return {at::rand({3, 5}),
          at::rand({70'000}),
          at::rand({300, 700}).t(),
          at::rand({2, 3, 90'000}),
          at::rand({5, 4, 30, 40}).permute({0, 2, 3, 1}),
          at::rand({0, 4}),
          at::scalar_tensor(2.5),
          at::randint(0, 2, {100'001}, at::kBool),
          at::complex(at::rand({90, 111}), at::rand({90, 111})).t().conj(),
          at::ones({1, 1, 40'000}, at::kDouble),
          at::rand({17}).expand({4000, 17}),
          at::randint(0, 100, {33'333}, at::kByte)};
}

TEST_CASE("StagingQueue: the bytes of all tensors in order, whatever its size") {
  const uint64_t bytes = GENERATE(uint64_t{1}, uint64_t{1} << 20, uint64_t{256} << 20);
  CAPTURE(bytes);
  StagingQueue queue(bytes);
  for (int save = 0; save < 3; ++save) {
    auto tensors = various_tensors();
    Files expected;
    queue.open();
    auto taken = std::async(std::launch::async, [&] { return take_all(queue); });
    const auto error = test::error_of([&] {
      for (int file = 0; file < 3; ++file) {
        const auto name = "file" + std::to_string(file);
        const std::string head(static_cast<size_t>(file) * 100, 'h');
        expected[name] = head;
        queue.begin_file(name, head);
        for (const auto& tensor : tensors) {
          expected[name] += elements_of(tensor);
          queue.append(tensor);
        }
      }
    });
    CHECK(error == "no error");
    queue.close();
    for (auto& tensor : tensors) tensor = at::Tensor();  // what was appended is the queue's
    const auto files = taken.get();
    REQUIRE(files.size() == expected.size());
    for (const auto& [name, content] : expected) CHECK((files.at(name) == content));
  }
}

TEST_CASE("StagingQueue: what was appended stays as it was when the tensor changes") {
  StagingQueue queue(uint64_t{4} << 20);
  auto tensor = at::rand({50'000});
  const auto expected = elements_of(tensor);
  queue.open();
  queue.begin_file("file", "");
  queue.append(tensor);
  tensor.zero_();
  queue.close();
  CHECK((take_all(queue).at("file") == expected));
}

TEST_CASE("StagingQueue: the thread that takes learns that the files are not complete") {
  StagingQueue queue(1);
  queue.open();
  auto taken = std::async(std::launch::async, [&] { return test::error_of([&] { take_all(queue); }); });
  queue.begin_file("file", "head");
  queue.append(at::rand({100}));
  queue.abandon();
  CHECK(taken.get() == "the state could not be copied");
}

}  // namespace
}  // namespace ddp
