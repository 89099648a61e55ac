// Lists of tensors as few messages, and back.
#include "comm/collectives/tensor_packing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/tensors.h"

namespace ddp::detail {
namespace {

using test::EqualsTensor;
using Tensors = std::vector<at::Tensor>;

// One of many kinds of tensors with values of its own.
at::Tensor draw(std::mt19937& random) {
  const auto number = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<unsigned>(most)); };
  const at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kLong, at::kBool, at::kComplexFloat};
  const at::Tensor matrix = (at::arange(24) + number(100)).view({4, 6}).to(dtypes[number(6)]);
  switch (number(8)) {
    case 0:
      return matrix;
    case 1:
      return matrix.t();
    case 2:
      return matrix.slice(1, 0, 6, 2);
    case 3:
      return matrix.select(1, 3);  // a vector with gaps
    case 4:
      return matrix.flatten()[number(24)];  // no dimensions
    case 5:
      return matrix.slice(0, 2, 2);  // no elements
    case 6:
      return matrix.view({2, 2, 3, 2}).contiguous(at::MemoryFormat::ChannelsLast);
    default:
      return matrix.is_floating_point() ? matrix.clone().requires_grad_() : matrix.clone();
  }
}

TEST_CASE("TensorPacking: random lists come back from their packs as they were") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Tensors list;
    for (auto count = random() % 9; count > 0; --count) list.push_back(draw(random));
    Tensors before;
    for (const at::Tensor& tensor : list) before.push_back(tensor.detach().clone());
    const std::vector<TensorPack> packs = pack_by_dtype(list);
    size_t packed = 0;
    for (size_t i = 0; i < packs.size(); ++i) {
      int64_t elements = 0;
      for (const at::Tensor& tensor : packs[i].tensors) {
        CHECK(tensor.scalar_type() == packs[i].flat.scalar_type());
        elements += tensor.numel();
      }
      packed += packs[i].tensors.size();
      CHECK(packs[i].flat.is_contiguous());
      CHECK(packs[i].flat.dim() == 1);
      CHECK(packs[i].flat.numel() == elements);
      CHECK_FALSE(packs[i].flat.requires_grad());
      for (size_t other = 0; other < i; ++other) {
        CHECK(packs[i].flat.scalar_type() != packs[other].flat.scalar_type());
      }
    }
    CHECK(packed == list.size());
    for (const at::Tensor& tensor : list) tensor.detach().zero_();
    // Where a pack is its only tensor's memory, it is zero by now as well.
    for (const TensorPack& pack : packs) {
      if (!(pack.tensors.size() == 1 && pack.flat.is_alias_of(pack.tensors[0]))) pack.unpack();
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const bool was_alias = list[i].numel() > 0 && at::equal(list[i].detach(), at::zeros_like(list[i].detach()));
      if (!was_alias) CHECK_THAT(list[i].detach(), EqualsTensor(before[i]));
      if (was_alias) CHECK(list[i].is_contiguous());
    }
  }
}

TEST_CASE("TensorPacking: what is written to the packs reaches every kind of tensor") {
  const at::Tensor matrix = at::zeros({4, 6});
  const at::Tensor complex = at::complex(at::ones({2}), at::ones({2}));
  const Tensors list{matrix.t().slice(0, 1, 6, 2), at::zeros({}), at::zeros({2}).requires_grad_(), complex.conj()};
  for (const TensorPack& pack : pack_by_dtype(list)) {
    pack.flat.mul_(0).add_(at::arange(1, pack.flat.numel() + 1));
    if (pack.flat.is_complex()) pack.flat.add_(c10::complex<double>(0, 1));
    pack.unpack();
  }
  CHECK_THAT(list[0], EqualsTensor(at::arange(1, 13, at::kFloat).view({3, 4})));
  CHECK(matrix.sum().item<float>() == 78);  // and nothing beside it
  CHECK(list[1].item<float>() == 13);
  CHECK_THAT(list[2].detach(), EqualsTensor(at::arange(14, 16, at::kFloat)));
  CHECK(list[2].is_leaf());
  UNSCOPED_INFO("the conjugated view holds what was received, its memory the conjugate of that");
  CHECK_THAT(list[3].resolve_conj(), EqualsTensor(at::complex(at::arange(1, 3, at::kFloat), at::ones({2}))));
  CHECK_THAT(complex, EqualsTensor(at::complex(at::arange(1, 3, at::kFloat), -at::ones({2}))));
}

TEST_CASE("TensorPacking: one contiguous tensor is not copied, anything else is") {
  const at::Tensor alone = at::ones({2, 3});
  CHECK(pack_by_dtype({alone}).at(0).flat.data_ptr() == alone.data_ptr());
  CHECK_FALSE(pack_by_dtype({alone.t()}).at(0).flat.is_alias_of(alone));
  CHECK_FALSE(pack_by_dtype({alone, alone}).at(0).flat.is_alias_of(alone));
  CHECK_FALSE(pack_by_dtype({at::_neg_view(alone)}).at(0).flat.is_neg());
  CHECK_THAT(pack_by_dtype({at::_neg_view(alone)}).at(0).flat, EqualsTensor(at::full_like(alone, -1).flatten()));
  CHECK(pack_by_dtype({}).empty());
}

}  // namespace
}  // namespace ddp::detail
