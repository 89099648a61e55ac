// One rank of a job that functional_test.py has drawn: functional_program CASES RESULT. Its Python twin is
// functional_program.py.
//
// CASES: {"programs": [{"leaves": […], "steps": […], "second": …}, …]}. A program computes a value in each step, from
// its leaves and earlier steps; then come the gradients of the leaves, and with "second" those of a sum of the
// gradients. Writes for each program the list of all of them, as {"dtype", "shape", "bytes"}, or "error".
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <c10/util/accumulate.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/functional.h>
#include <ddprun/comm/report.h>

namespace {

using nlohmann::json;
using Tensors = std::vector<at::Tensor>;
namespace functional = ddp::functional;

const std::map<std::string, at::ScalarType> kFloats{
    {"float32", at::kFloat}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16}};

const std::map<std::string, ddp::ReduceOp> kReductions{{"sum", ddp::ReduceOp::kSum},
                                                       {"avg", ddp::ReduceOp::kAvg},
                                                       {"product", ddp::ReduceOp::kProduct},
                                                       {"min", ddp::ReduceOp::kMin},
                                                       {"max", ddp::ReduceOp::kMax}};

// With a small "range" ranks have equal values; every "nan"-th number is one.
at::Tensor leaf_of(const json& leaf, int64_t rank) {
  const std::vector<int64_t> shape = leaf.at("shape");
  const int64_t range = leaf.at("range");
  const at::Tensor number = at::arange(c10::multiply_integers(shape), at::kLong);
  const at::Tensor whole =
      number.mul(7919).add(rank * 104729 + leaf.at("seed").get<int64_t>() * 31).remainder(range).sub(range / 2);
  at::Tensor values = whole.to(at::kDouble).div(8);
  if (const int64_t every = leaf.at("nan"); every > 0) {
    values = at::where(number.add(rank).remainder(every).eq(0), std::numeric_limits<double>::quiet_NaN(), values);
  }
  return values.view(shape).to(kFloats.at(leaf.at("dtype"))).requires_grad_(leaf.at("grad").get<bool>());
}

class Program {
 public:
  Program(const json& spec, const ddp::GroupHandle& group) : spec_(spec), group_(group) {}

  Tensors run() {
    for (const json& leaf : spec_.at("leaves")) values_.push_back(leaf_of(leaf, group_.rank()));
    for (const json& step : spec_.at("steps")) {
      for (at::Tensor& value : outputs_of(step)) values_.push_back(std::move(value));
    }
    Tensors results = values_;
    Tensors leaves;
    for (size_t i = 0; i < spec_.at("leaves").size(); ++i) {
      if (values_[i].requires_grad()) leaves.push_back(values_[i]);
    }
    const bool second = spec_.at("second");
    Tensors gradients = gradients_of(weighted_sum(values_), leaves, second);
    results.insert(results.end(), gradients.begin(), gradients.end());
    if (second) {
      gradients = gradients_of(weighted_sum(gradients), leaves, /*create_graph=*/false);
      results.insert(results.end(), gradients.begin(), gradients.end());
    }
    return results;
  }

 private:
  // Of squares, so that there are second gradients.
  static at::Tensor weighted_sum(const Tensors& tensors) {
    at::Tensor sum = at::zeros({}, at::kDouble);
    double weight = 0.5;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) sum = sum + (tensor * tensor).sum().to(at::kDouble) * weight;
      weight += 0.25;
    }
    return sum;
  }

  static Tensors gradients_of(const at::Tensor& loss, const Tensors& leaves, bool create_graph) {
    return torch::autograd::grad({loss}, leaves, {}, std::nullopt, create_graph, /*allow_unused=*/true);
  }

  const at::Tensor& value(const json& step, size_t i = 0) const {
    return values_.at(step.at("of").at(i).get<size_t>());
  }
  Tensors list(const json& step) const {
    Tensors tensors;
    for (const json& index : step.at("of")) tensors.push_back(values_.at(index.get<size_t>()));
    return tensors;
  }

  Tensors outputs_of(const json& step) const {
    const std::string op = step.at("op");
    const ddp::ReduceOp reduction = kReductions.at(step.at("reduction"));
    const int64_t dim = step.at("dim");
    const int root = step.at("root");
    const bool async = step.at("async");
    if (op == "all_reduce" && async) return {functional::all_reduce_async(value(step), group_, reduction).wait()};
    if (op == "all_reduce") return {functional::all_reduce(value(step), group_, reduction)};
    if (op == "all_gather" && async && dim == 0) return {functional::all_gather_async(value(step), group_).wait()};
    if (op == "all_gather") return {functional::all_gather(value(step), group_, dim)};
    if (op == "reduce_scatter" && async && dim == 0) {
      return {functional::reduce_scatter_async(value(step), group_, reduction).wait()};
    }
    if (op == "reduce_scatter") return {functional::reduce_scatter(value(step), group_, reduction, dim)};
    if (op == "all_to_all" && async) return {functional::all_to_all_async(value(step), group_).wait()};
    if (op == "all_to_all") return {functional::all_to_all(value(step), group_)};
    if (op == "all_to_all_split") {
      const std::vector<std::vector<int64_t>> sent = step.at("splits");
      std::vector<int64_t> received;
      for (const auto& row : sent) received.push_back(row.at(static_cast<size_t>(group_.rank())));
      return {functional::all_to_all(value(step), received, sent.at(static_cast<size_t>(group_.rank())), group_)};
    }
    if (op == "all_reduce_coalesced") return functional::all_reduce_coalesced(list(step), group_, reduction);
    if (op == "all_gather_coalesced") return functional::all_gather_coalesced(list(step), group_);
    if (op == "reduce_scatter_coalesced") return functional::reduce_scatter_coalesced(list(step), group_, reduction);
    if (op == "broadcast") return {functional::broadcast(value(step), root, group_)};
    if (op == "reduce") return {functional::reduce(value(step), root, group_, reduction)};
    if (op == "gather") return {functional::gather(value(step), root, group_)};
    if (op == "scatter") return {functional::scatter(value(step), root, group_)};
    if (op == "multiply") return {value(step) * value(step, 1)};
    if (op == "tanh") return {value(step).tanh()};
    if (op == "transpose") return {value(step).transpose(0, -1)};
    if (op == "expand") return {value(step).unsqueeze(0).expand_as(value(step, 1))};
    throw std::invalid_argument("unknown operation " + op);
  }

  const json& spec_;
  const ddp::GroupHandle& group_;
  Tensors values_;
};

json bytes_as_json(const Tensors& tensors) {
  json list = json::array();
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      list.push_back(nullptr);
      continue;
    }
    // Of NaN sums may give any.
    const at::Tensor plain =
        tensor.detach().contiguous().masked_fill(tensor.isnan(), std::numeric_limits<double>::quiet_NaN());
    std::string hex;
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (size_t i = 0; i < plain.nbytes(); ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
      hex += digits;
    }
    std::string dtype;
    for (const auto& [name, type] : kFloats) {
      if (type == plain.scalar_type()) dtype = name;
    }
    list.push_back({{"dtype", dtype}, {"shape", plain.sizes().vec()}, {"bytes", hex}});
  }
  return list;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("two arguments are needed");
  std::ifstream file(argv[1]);
  const json cases = json::parse(file);
  const ddp::ProcessGroup group = ddp::init_process_group();
  json results = json::array();
  for (const json& spec : cases.at("programs")) {
    try {
      results.push_back(bytes_as_json(Program(spec, group).run()));
    } catch (const std::exception& error) {
      if (!spec.at("fails").get<bool>()) throw;
      results.push_back("error");
    }
  }
  std::ofstream(argv[2]) << results;
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
