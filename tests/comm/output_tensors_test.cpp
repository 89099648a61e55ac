// The tensors in whatever a forward takes or returns are found, and replaced where they are.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <array>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <ddprun/comm/output_tensors.h>

#include "tests/support/catch.h"

namespace outputs {

// A type of a user's own, with parts of several kinds.
struct Detection {
  at::Tensor boxes;
  std::vector<at::Tensor> scores;
  std::optional<at::Tensor> mask;
  int classes = 0;
};
template <typename Visit>
void visit_tensors(Detection& output, Visit&& visit) {
  visit(output.boxes);
  visit(output.scores);
  visit(output.mask);
}

// One that hands out a copy, so that nothing can be put back.
struct ByValue {
  at::Tensor tensor;
};
template <typename Visit>
void visit_tensors(ByValue output, Visit&& visit) {
  visit(output.tensor);
}

// Nobody knows what it holds.
struct Unknown {
  at::Tensor hidden;
};

// A range that has more than its elements.
struct Named : std::vector<at::Tensor> {
  at::Tensor more;
};

}  // namespace outputs

namespace ddp {
namespace {

at::Tensor number(int value) {
  return at::full({}, value, at::kLong);
}

std::vector<int64_t> output_numbers(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> values;
  for (const at::Tensor& tensor : tensors) values.push_back(tensor.defined() ? tensor.item<int64_t>() : -1);
  return values;
}

// What is found in `output`, and that it is known and replaced: each number is found as itself plus 10 afterwards.
template <typename Output>
std::vector<int64_t> found_and_replaced(Output output) {
  const OutputTensors before = find_tensors(output);
  CHECK(before.known);
  CHECK(before.fixed.empty());
  std::vector<at::Tensor> replacements;
  for (const at::Tensor& tensor : before.tensors) {
    replacements.push_back(tensor.defined() ? tensor.add(10) : at::Tensor());
  }
  CHECK(replace_tensors(output, replacements));
  const std::vector<int64_t> values = output_numbers(before.tensors);
  std::vector<int64_t> expected = values;
  for (int64_t& value : expected) value += value == -1 ? 0 : 10;
  CHECK(output_numbers(find_tensors(output).tensors) == expected);
  return values;
}

using Values = std::vector<int64_t>;

TEST_CASE("OutputTensors: a tensor is its own tensor, also an undefined one") {
  CHECK(found_and_replaced(number(1)) == Values{1});
  CHECK(found_and_replaced(at::Tensor()) == Values{-1});
}

TEST_CASE("OutputTensors: are found in the standard library's types, in order") {
  CHECK(found_and_replaced(std::vector{number(1), at::Tensor(), number(3)}) == Values{1, -1, 3});
  CHECK(found_and_replaced(std::array{number(1), number(2)}) == Values{1, 2});
  CHECK(found_and_replaced(std::list{number(1), number(2)}) == Values{1, 2});
  CHECK(found_and_replaced(std::pair{number(1), 2.0}) == Values{1});
  CHECK(found_and_replaced(std::tuple{number(1), std::string("text"), true, std::vector{number(2)}}) == Values{1, 2});
  CHECK(found_and_replaced(std::tuple{}) == Values{});
  CHECK(found_and_replaced(std::map<std::string, at::Tensor>{{"b", number(2)}, {"a", number(1)}}) == Values{1, 2});
  CHECK(found_and_replaced(std::optional{number(4)}) == Values{4});
  CHECK(found_and_replaced(std::optional<at::Tensor>()) == Values{});
  CHECK(found_and_replaced(std::variant<int, at::Tensor>(number(5))) == Values{5});
  CHECK(found_and_replaced(std::variant<int, at::Tensor>(5)) == Values{});
  CHECK(found_and_replaced(std::variant<std::monostate, at::Tensor>()) == Values{});
  CHECK(found_and_replaced(std::make_shared<at::Tensor>(number(6))) == Values{6});
  CHECK(found_and_replaced(std::shared_ptr<at::Tensor>()) == Values{});
  CHECK(found_and_replaced(std::vector<std::optional<std::pair<int, at::Tensor>>>{
            std::pair{1, number(1)}, std::nullopt, std::pair{2, number(2)}}) == Values{1, 2});
  CHECK(found_and_replaced(std::vector<std::vector<at::Tensor>>{{}, {number(1)}, {number(2), number(3)}}) ==
        Values{1, 2, 3});
}

TEST_CASE("OutputTensors: numbers and texts have none, and are known") {
  enum class Kind { kOne };
  CHECK(found_and_replaced(1) == Values{});
  CHECK(found_and_replaced(false) == Values{});
  CHECK(found_and_replaced(Kind::kOne) == Values{});
  CHECK(found_and_replaced(std::string("text")) == Values{});
  CHECK(found_and_replaced(std::string_view("text")) == Values{});
  CHECK(found_and_replaced(std::vector<double>{1, 2}) == Values{});
  CHECK(found_and_replaced(std::vector<std::string>{"a"}) == Values{});
}

TEST_CASE("OutputTensors: a type of the user's own shows its members") {
  const outputs::Detection detection{
      .boxes = number(1), .scores = {number(2), number(3)}, .mask = number(4), .classes = 7};
  CHECK(found_and_replaced(detection) == Values{1, 2, 3, 4});
  CHECK(found_and_replaced(std::vector{detection, outputs::Detection{}}) == Values{1, 2, 3, 4, -1});
  CHECK(found_and_replaced(std::make_unique<outputs::Detection>(detection)) == Values{1, 2, 3, 4});
}

TEST_CASE("OutputTensors: what is not known is said, and the rest is found") {
  outputs::Unknown unknown{number(1)};
  CHECK_FALSE(find_tensors(unknown).known);
  std::pair mixed{number(2), unknown};
  const OutputTensors found = find_tensors(mixed);
  CHECK_FALSE(found.known);
  CHECK(output_numbers(found.tensors) == Values{2});
  UNSCOPED_INFO("a class that is a range may hold more than its elements");
  outputs::Named named;
  named.push_back(number(3));
  CHECK_FALSE(find_tensors(named).known);
  CHECK(output_numbers(find_tensors(named).tensors) == Values{3});
  std::filesystem::path path("a/b");
  CHECK_FALSE(find_tensors(path).known);
  std::optional<outputs::Unknown> none;
  CHECK(find_tensors(none).known);
}

TEST_CASE("OutputTensors: what is const is looked at and never replaced") {
  const auto constant = std::make_shared<const at::Tensor>(number(1));
  std::tuple output{constant, number(2)};
  const OutputTensors found = find_tensors(output);
  CHECK(found.known);
  CHECK(output_numbers(found.fixed) == Values{1});
  CHECK(output_numbers(found.tensors) == Values{2});
  CHECK(replace_tensors(output, {number(12)}));
  CHECK(constant->item<int64_t>() == 1);
  CHECK(std::get<1>(output).item<int64_t>() == 12);
  const std::vector<at::Tensor> list{number(3)};
  CHECK(output_numbers(find_tensors(list).fixed) == Values{3});
}

TEST_CASE("ReplaceTensors: only defined ones are put in, and only as many as there are") {
  std::vector output{number(1), number(2), number(3)};
  CHECK(replace_tensors(output, {at::Tensor(), number(12)}));
  CHECK(output_numbers(output) == Values{1, 12, 3});
  CHECK(replace_tensors(output, {}));
  CHECK(replace_tensors(output, {number(21), at::Tensor(), at::Tensor(), number(24)}));
  CHECK(output_numbers(output) == Values{21, 12, 3});
}

TEST_CASE("ReplaceTensors: says when a replacement did not stay") {
  outputs::ByValue output{number(1)};
  CHECK(output_numbers(find_tensors(output).tensors) == Values{1});
  CHECK_FALSE(replace_tensors(output, {number(11)}));
  CHECK(output.tensor.item<int64_t>() == 1);
  CHECK(replace_tensors(output, {at::Tensor()}));
}

TEST_CASE("ReplaceTensors: one place that two pointers share may be given twice") {
  const auto shared = std::make_shared<at::Tensor>(number(1));
  std::pair output{shared, shared};
  CHECK(output_numbers(find_tensors(output).tensors) == Values{1, 1});
  CHECK(replace_tensors(output, {number(11), number(12)}));
  CHECK(shared->item<int64_t>() == 12);
}

}  // namespace
}  // namespace ddp
