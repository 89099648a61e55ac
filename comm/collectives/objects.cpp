#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "comm/collectives/begin.h"
#include "comm/group/argument_checks.h"
#include "ddprun/comm/collectives.h"

namespace ddp {
namespace {

constexpr const char* kSendStrings = "send_strings";

int64_t size_of(const std::string& text) {
  return static_cast<int64_t>(text.size());
}

// A number by which a receiver distinguishes the texts of this function from other tensors: gloo compares neither sizes
// nor dtypes. It is the FNV-1a hash of the name.
int64_t tag_of_operation(const char* operation) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : std::string_view(operation)) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return static_cast<int64_t>(hash);
}

// The mark and `numbers`, which precede the texts.
at::Tensor header_of(const char* operation, std::vector<int64_t> numbers, c10::Device device) {
  numbers.insert(numbers.begin(), tag_of_operation(operation));
  return at::tensor(numbers, at::kLong).to(device);
}

// The numbers of a header on the CPU that rank `from` has sent, none of which is negative.
at::Tensor checked_numbers(const at::Tensor& header, int from, const GroupHandle& group, const char* operation) {
  const at::Tensor numbers = header.narrow(0, 1, header.numel() - 1);
  if (header[0].item<int64_t>() == tag_of_operation(operation) && numbers.ge(0).all().item<bool>()) return numbers;
  throw std::runtime_error(who(group.info()) + ": " + operation + ": the data that arrived from rank " +
                           std::to_string(from) + " was not sent by " + operation +
                           ": all ranks must call the same operations in the same order");
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

// Options for the collectives that exchange texts: errors name the function that the program has called.
detail::BeginOptions as_part_of(const char* operation) {
  return {.async = false, .caller = operation};
}

at::Tensor gathered(const at::Tensor& tensor, const GroupHandle& group, const char* operation) {
  auto [started, all] = detail::begin_all_gather(tensor, group, as_part_of(operation));
  started->wait();
  return all;
}

// The length of each rank's text.
at::Tensor gathered_lengths(const std::string& text, const GroupHandle& group, const char* operation) {
  const c10::Device device = detail::host_value_device(group);
  const at::Tensor headers = gathered(header_of(operation, {size_of(text)}, device), group, operation).cpu();
  for (int rank = 0; rank < group.size(); ++rank) checked_numbers(headers[rank], rank, group, operation);
  return headers.select(1, 1).contiguous();
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
  const at::Tensor lengths = gathered_lengths(text, group, kName);
  const int64_t longest = lengths.max().item<int64_t>();
  if (longest == 0) return std::vector<std::string>(static_cast<size_t>(group.size()));
  return unpad(gathered(padded_bytes(text, longest, device), group, kName), lengths);
}

std::vector<std::string> gather_strings(const std::string& text, int root, const GroupHandle& group) {
  constexpr const char* kName = "gather_strings";
  detail::check_rank(root, "root", group, kName);
  const c10::Device device = detail::host_value_device(group);
  const at::Tensor lengths = gathered_lengths(text, group, kName);
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
  const at::Tensor header = header_of(kName, {size_of(text)}, device);
  broadcast_as(kName, header, root, group);
  const auto size = checked_numbers(header.cpu(), root, group, kName).item<int64_t>();
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
  std::vector<int64_t> sizes(static_cast<size_t>(group.size()));
  for (size_t rank = 0; is_root && rank < texts.size(); ++rank) sizes[rank] = size_of(texts[rank]);
  const at::Tensor header = header_of(kName, sizes, device);
  broadcast_as(kName, header, root, group);
  const at::Tensor lengths = checked_numbers(header.cpu(), root, group, kName);
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
    const int64_t length = size_of(text);
    packed.append(reinterpret_cast<const char*>(&length), sizeof length);
  }
  for (const std::string& text : texts) packed += text;
  const auto count = static_cast<int64_t>(texts.size());
  const int64_t size = size_of(packed);
  exchange(send_to(to, header_of(kSendStrings, {count, size}, device), tag), group, kSendStrings);
  if (size > 0) exchange(send_to(to, padded_bytes(packed, size, device), tag), group, kSendStrings);
}

std::vector<std::string> recv_strings(int from, const GroupHandle& group, int tag) {
  constexpr const char* kName = "recv_strings";
  const auto refuse_unless = [&](bool is_list) {
    if (is_list) return;
    throw std::runtime_error(who(group.info()) + ": " + kName + ": the message from rank " + std::to_string(from) +
                             " with tag " + std::to_string(tag) + " is not a list that " + kSendStrings +
                             "() has sent: use a different tag for messages of other kinds");
  };
  const c10::Device device = detail::host_value_device(group);
  at::Tensor header = at::zeros({3}, at::TensorOptions(at::kLong).device(device));
  exchange(receive_from(from, header, tag), group, kName);
  header = header.cpu();
  const int64_t count = header[1].item<int64_t>();
  const int64_t size = header[2].item<int64_t>();
  constexpr int64_t kLengthBytes = sizeof(int64_t);
  refuse_unless(header[0].item<int64_t>() == tag_of_operation(kSendStrings) && size >= 0 && count >= 0 &&
                count <= size / kLengthBytes);
  if (size == 0) return {};
  at::Tensor bytes = at::zeros({size}, at::TensorOptions(at::kByte).device(device));
  exchange(receive_from(from, bytes, tag), group, kName);
  bytes = bytes.cpu();
  const char* const begin = reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>());
  const char* text = begin + count * kLengthBytes;
  int64_t left = size - count * kLengthBytes;
  std::vector<std::string> texts;
  for (int64_t i = 0; i < count; ++i) {
    int64_t length = 0;
    std::memcpy(&length, begin + i * kLengthBytes, sizeof length);
    refuse_unless(length >= 0 && length <= left);
    texts.emplace_back(text, static_cast<size_t>(length));
    text += length;
    left -= length;
  }
  refuse_unless(left == 0);
  return texts;
}

}  // namespace ddp
