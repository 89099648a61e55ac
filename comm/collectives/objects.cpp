#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "comm/collectives/begin.h"
#include "comm/group/argument_checks.h"
#include "ddprun/comm/collectives.h"

namespace ddp {
namespace {

at::Tensor length_of(const std::string& text, c10::Device device) {
  return at::tensor({static_cast<int64_t>(text.size())}, at::kLong).to(device);
}

at::Tensor padded_bytes(const std::string& text, int64_t length, c10::Device device) {
  at::Tensor bytes = at::zeros({length}, at::kByte);
  std::memcpy(bytes.data_ptr<uint8_t>(), text.data(), text.size());
  return bytes.to(device);
}

// `all` holds one padded row per rank.
std::vector<std::string> unpad(const at::Tensor& all, const at::Tensor& lengths) {
  const at::Tensor rows = all.cpu();
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < rows.size(0); ++rank) {
    const char* begin = reinterpret_cast<const char*>(rows.data_ptr<uint8_t>()) + rank * rows.size(1);
    texts.emplace_back(begin, static_cast<size_t>(lengths.data_ptr<int64_t>()[rank]));
  }
  return texts;
}

// What texts are made of, in the name of the function that the program has called.
detail::BeginOptions as_part_of(const char* operation) {
  return {.async = false, .caller = operation};
}

at::Tensor gathered(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  auto [started, all] = detail::begin_all_gather(tensor, group, as_part_of(operation));
  started->wait();
  return all;
}

void broadcast_as(const char* operation, const at::Tensor& tensor, int root, const GroupHandle& group) {
  detail::begin_broadcast(tensor, root, group, as_part_of(operation))->wait();
}

void exchange(const Message& message, const GroupHandle& group, const char* operation) {
  detail::begin_message(message, group, {.caller = operation})->wait();
}

}  // namespace

std::vector<std::string> all_gather_strings(const std::string& text, const GroupHandle& group) {
  constexpr const char* kName = "all_gather_strings";
  const c10::Device device = detail::host_value_device(group);
  const at::Tensor lengths = gathered(length_of(text, device), group, kName).cpu().view({-1});
  const int64_t longest = lengths.max().item<int64_t>();
  if (longest == 0) return std::vector<std::string>(static_cast<size_t>(group.size()));
  return unpad(gathered(padded_bytes(text, longest, device), group, kName), lengths);
}

std::vector<std::string> gather_strings(const std::string& text, int root, const GroupHandle& group) {
  constexpr const char* kName = "gather_strings";
  detail::check_rank(root, "root", group, kName);
  const c10::Device device = detail::host_value_device(group);
  const at::Tensor lengths = gathered(length_of(text, device), group, kName).cpu().view({-1});
  const int64_t longest = lengths.max().item<int64_t>();
  const bool is_root = group.rank() == root;
  if (longest == 0) return std::vector<std::string>(is_root ? static_cast<size_t>(group.size()) : 0);
  auto [started, all] = detail::begin_gather(padded_bytes(text, longest, device), root, group, as_part_of(kName));
  started->wait();
  return is_root ? unpad(all, lengths) : std::vector<std::string>();
}

std::string broadcast_string(const std::string& text, int root, const GroupHandle& group) {
  constexpr const char* kName = "broadcast_string";
  detail::check_rank(root, "root", group, kName);
  const c10::Device device = detail::host_value_device(group);
  at::Tensor length = length_of(text, device);
  broadcast_as(kName, length, root, group);
  const auto size = length.item<int64_t>();
  if (size == 0) return "";
  const at::Tensor bytes = padded_bytes(group.rank() == root ? text : "", size, device);
  broadcast_as(kName, bytes, root, group);
  const at::Tensor received = bytes.cpu();
  return {reinterpret_cast<const char*>(received.data_ptr<uint8_t>()), static_cast<size_t>(size)};
}

std::string scatter_string(const std::vector<std::string>& texts, int root, const GroupHandle& group) {
  constexpr const char* kName = "scatter_string";
  detail::check_rank(root, "root", group, kName);
  const bool is_root = group.rank() == root;
  if (is_root && texts.size() != static_cast<size_t>(group.size())) {
    detail::refuse(
        group, kName,
        "expected one text per rank, " + std::to_string(group.size()) + ", got " + std::to_string(texts.size()));
  }
  const c10::Device device = detail::host_value_device(group);
  at::Tensor lengths = at::zeros({group.size()}, at::kLong);
  for (size_t rank = 0; is_root && rank < texts.size(); ++rank) {
    lengths[static_cast<int64_t>(rank)] = static_cast<int64_t>(texts[rank].size());
  }
  lengths = lengths.to(device);
  broadcast_as(kName, lengths, root, group);
  lengths = lengths.cpu();
  const int64_t longest = lengths.max().item<int64_t>();
  if (longest == 0) return "";
  std::vector<at::Tensor> parts;
  if (is_root) {
    for (const std::string& text : texts) parts.push_back(padded_bytes(text, longest, device));
  }
  const at::Tensor own = padded_bytes("", longest, device);
  detail::begin_scatter(own, parts, root, group, as_part_of(kName))->wait();
  const int64_t length = lengths[group.rank()].item<int64_t>();
  return unpad(own.view({1, longest}), at::tensor({length}, at::kLong)).front();
}

// Two messages: how many texts and bytes; then each text's length, as a number of 8 bytes, and all texts.
void send_strings(const std::vector<std::string>& texts, int to, const GroupHandle& group, int tag) {
  const c10::Device device = detail::host_value_device(group);
  std::string packed;
  for (const std::string& text : texts) {
    const auto length = static_cast<int64_t>(text.size());
    packed.append(reinterpret_cast<const char*>(&length), sizeof length);
  }
  for (const std::string& text : texts) packed += text;
  const auto size = static_cast<int64_t>(packed.size());
  const at::Tensor header = at::tensor({static_cast<int64_t>(texts.size()), size}, at::kLong).to(device);
  exchange(send_to(to, header, tag), group, "send_strings");
  if (size > 0) exchange(send_to(to, padded_bytes(packed, size, device), tag), group, "send_strings");
}

std::vector<std::string> recv_strings(int from, const GroupHandle& group, int tag) {
  const c10::Device device = detail::host_value_device(group);
  at::Tensor header = at::zeros({2}, at::TensorOptions(at::kLong).device(device));
  exchange(receive_from(from, header, tag), group, "recv_strings");
  header = header.cpu();
  const auto count = static_cast<size_t>(header[0].item<int64_t>());
  const int64_t size = header[1].item<int64_t>();
  if (size == 0) return {};
  at::Tensor bytes = at::zeros({size}, at::TensorOptions(at::kByte).device(device));
  exchange(receive_from(from, bytes, tag), group, "recv_strings");
  bytes = bytes.cpu();
  const char* const begin = reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>());
  const char* text = begin + count * sizeof(int64_t);
  std::vector<std::string> texts;
  for (size_t i = 0; i < count; ++i) {
    int64_t length = 0;
    std::memcpy(&length, begin + i * sizeof length, sizeof length);
    texts.emplace_back(text, static_cast<size_t>(length));
    text += length;
  }
  return texts;
}

}  // namespace ddp
