// One rank of a job that parity_test.py has drawn: parity_program CASES RESULT. Its Python twin is parity_program.py.
//
// CASES: {"windows": [{"cases": […], "order": […]}, …]}; all cases of a window are started, then waited for in the
// order. Writes the list of results: for each case a list of {"dtype", "shape", "bytes"}, or "error".
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/report.h>

namespace {

using nlohmann::json;
using Tensors = std::vector<at::Tensor>;
// Waits for what was started, and says what this rank has then.
using Finish = std::function<Tensors()>;

const std::map<std::string, at::ScalarType> kDtypes{
    {"float32", at::kFloat}, {"float64", at::kDouble}, {"float16", at::kHalf},          {"bfloat16", at::kBFloat16},
    {"int8", at::kChar},     {"uint8", at::kByte},     {"int16", at::kShort},           {"int32", at::kInt},
    {"int64", at::kLong},    {"bool", at::kBool},      {"complex64", at::kComplexFloat}};

const std::map<std::string, ddp::ReduceOp> kOps{{"sum", ddp::ReduceOp::kSum},
                                                {"avg", ddp::ReduceOp::kAvg},
                                                {"product", ddp::ReduceOp::kProduct},
                                                {"min", ddp::ReduceOp::kMin},
                                                {"max", ddp::ReduceOp::kMax}};

at::Tensor values(int64_t seed, int64_t rank, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  const at::Tensor whole = at::arange(c10::multiply_integers(shape), at::kLong)
                               .mul(7919)
                               .add(rank * 104729 + seed * 31)
                               .remainder(2001)
                               .sub(1000)
                               .view(shape);
  const at::Tensor eighths = whole.to(at::kDouble).div(8);
  if (dtype == at::kComplexFloat) return at::complex(eighths, eighths + 1).to(dtype);
  if (dtype == at::kBool) return whole.remainder(2).to(dtype);
  return (at::isFloatingType(dtype) ? eighths : whole).to(dtype);
}

struct Collective {
  const json& spec;
  const ddp::GroupHandle& group;

  int64_t seed() const { return spec.at("seed"); }
  int root() const { return spec.at("root"); }
  bool is_root() const { return group.rank() == root(); }
  ddp::ReduceOp op() const { return kOps.at(spec.at("op")); }
  at::ScalarType dtype() const { return kDtypes.at(spec.at("dtype")); }
  std::vector<int64_t> shape() const { return spec.at("shape"); }
  std::vector<int64_t> shape_for_ranks() const {
    auto sizes = shape();
    sizes.insert(sizes.begin(), group.size());
    return sizes;
  }
  at::Tensor mine() const { return values(seed(), group.rank(), shape(), dtype()); }
  at::Tensor mine_for_ranks() const { return values(seed(), group.rank(), shape_for_ranks(), dtype()); }
  // A list of odd tensors, gaps included where both languages take them.
  Tensors list() const {
    const at::Tensor first = mine_for_ranks();
    return {first, values(seed() + 1, group.rank(), {}, at::kLong), first.transpose(0, -1),
            values(seed() + 2, group.rank(), {5, 3}, dtype())};
  }
};

template <typename Result>
Finish finish(ddp::Pending<Result> pending, std::function<Tensors(const Result&)> results) {
  const auto shared = std::make_shared<ddp::Pending<Result>>(std::move(pending));
  return [shared, results = std::move(results)] { return results(shared->wait()); };
}
Finish finish(ddp::Pending<void> pending, Tensors results) {
  const auto shared = std::make_shared<ddp::Pending<void>>(std::move(pending));
  return [shared, results = std::move(results)] {
    shared->wait();
    return results;
  };
}
Finish finish(ddp::Pending<at::Tensor> pending) {
  return finish<at::Tensor>(std::move(pending),
                            [](const at::Tensor& t) { return t.defined() ? Tensors{t} : Tensors{}; });
}

const std::map<std::string, std::function<Finish(const Collective&)>> kOperations{
    {"all_reduce",
     [](const Collective& c) {
       const at::Tensor t = c.mine();
       return finish(ddp::all_reduce_async(t, c.group, c.op()), {t});
     }},
    {"reduce",
     [](const Collective& c) {
       const at::Tensor t = c.mine();
       return finish(ddp::reduce_async(t, c.root(), c.group, c.op()), c.is_root() ? Tensors{t} : Tensors{});
     }},
    {"broadcast",
     [](const Collective& c) {
       const at::Tensor t = c.mine();
       return finish(ddp::broadcast_async(t, c.root(), c.group), {t});
     }},
    {"all_gather", [](const Collective& c) { return finish(ddp::all_gather_async(c.mine(), c.group)); }},
    {"gather", [](const Collective& c) { return finish(ddp::gather_async(c.mine(), c.root(), c.group)); }},
    {"scatter",
     [](const Collective& c) {
       const at::Tensor t = at::zeros(c.shape(), c.dtype());
       const Tensors parts = c.is_root() ? c.mine_for_ranks().unbind() : Tensors{};
       return finish(ddp::scatter_async(t, parts, c.root(), c.group), {t});
     }},
    {"reduce_scatter",
     [](const Collective& c) { return finish(ddp::reduce_scatter_async(c.mine_for_ranks(), c.group, c.op())); }},
    {"all_to_all", [](const Collective& c) { return finish(ddp::all_to_all_async(c.mine_for_ranks(), c.group)); }},
    {"ring",
     [](const Collective& c) {
       const int n = c.group.size();
       const at::Tensor received = at::zeros(c.shape(), c.dtype());
       const int tag = static_cast<int>(c.seed());
       return finish(ddp::batch_send_recv_async({ddp::send_to((c.group.rank() + 1) % n, c.mine(), tag),
                                                 ddp::receive_from((c.group.rank() + n - 1) % n, received, tag)},
                                                c.group),
                     {received});
     }},
    {"broadcast_coalesced",
     [](const Collective& c) {
       const Tensors list = c.list();
       ddp::broadcast_coalesced(list, c.root(), c.group, c.spec.at("buffer"));
       return Finish([list] { return list; });
     }},
    {"all_gather_uneven",
     [](const Collective& c) {
       auto shape = c.shape_for_ranks();
       shape[0] = c.spec.at("rows").at(static_cast<size_t>(c.group.rank()));
       return finish<Tensors>(ddp::all_gather_uneven_async(values(c.seed(), c.group.rank(), shape, c.dtype()), c.group),
                              [](const Tensors& parts) { return parts; });
     }},
    {"all_to_all_uneven", [](const Collective& c) {
       const std::vector<int64_t> counts = c.spec.at("counts").at(static_cast<size_t>(c.group.rank()));
       auto shape = c.shape_for_ranks();
       shape[0] = 0;
       for (const int64_t count : counts) shape[0] += count;
       const at::Tensor received =
           ddp::all_to_all_uneven(values(c.seed(), c.group.rank(), shape, c.dtype()), counts, c.group).tensor;
       return Finish([received] { return Tensors{received}; });
     }}};

json as_json(const Tensors& tensors) {
  json list = json::array();
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor plain = tensor.contiguous();
    std::string hex;
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (size_t i = 0; i < plain.nbytes(); ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
      hex += digits;
    }
    std::string dtype;
    for (const auto& [name, type] : kDtypes) {
      if (type == plain.scalar_type()) dtype = name;
    }
    list.push_back({{"dtype", dtype}, {"shape", plain.sizes().vec()}, {"bytes", hex}});
  }
  return list;
}

json results_of(const json& window, const ddp::GroupHandle& group) {
  std::vector<Finish> started;
  for (const json& spec : window.at("cases")) {
    try {
      started.push_back(kOperations.at(spec.at("operation"))(Collective{spec, group}));
    } catch (const std::exception&) {
      started.emplace_back();
    }
  }
  std::vector<json> results(started.size(), "error");
  for (const size_t i : window.at("order").get<std::vector<size_t>>()) {
    if (!started[i]) continue;
    try {
      results[i] = as_json(started[i]());
    } catch (const std::exception&) {  // an error it is already
      continue;
    }
  }
  return results;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("two arguments are needed");
  std::ifstream file(argv[1]);
  const json cases = json::parse(file);
  const ddp::ProcessGroup group = ddp::init_process_group();
  json results = json::array();
  for (const json& window : cases.at("windows")) {
    for (json& result : results_of(window, group)) results.push_back(std::move(result));
  }
  std::ofstream(argv[2]) << results;
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
