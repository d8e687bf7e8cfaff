// How ranks exchange memory of kernels (kernels/buffer.hpp): the rows of a layer. Beside it goes the Transport that it
// is made from, for all that the host itself says and hears. Where kernels use the memory of the host the exchange is
// one of that transport; on a device it is enqueued like a kernel and moves while the host goes on.
//
// Every method is collective, with the rules for sizes of Transport: sizes are known to the host, in bytes, 64-bit,
// and may be zero. send and recv are memory of kernels, and do not overlap. What is to be sent must have been enqueued
// before (kernels, copies); what is received is seen by what is enqueued later, and by the host after
// wait_for_kernels() (kernels/queue.hpp). Until then neither may be freed. An exchange that fails is reported by the
// next call of a method or by wait_for_kernels(): Error(machine). One that does not come within the time-out ends the
// job, and so does, as long as this lives, a device that has not finished by then.
#pragma once

#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace metro {

class DeviceExchange {
 public:
  // transport outlives this.
  explicit DeviceExchange(Transport& transport) : transport_(&transport) {}
  virtual ~DeviceExchange() = default;
  DeviceExchange(const DeviceExchange&) = delete;
  DeviceExchange& operator=(const DeviceExchange&) = delete;

  virtual std::string name() const = 0;  // "mpi", "nccl", "mpi, staged", ...: for the start-up table

  // recv = the messages of all ranks in rank order; the message of rank r has recv_bytes[r] bytes on every rank.
  virtual void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                          std::span<const std::int64_t> recv_bytes) = 0;

  // send holds the messages to rank 0, 1, ... of send_bytes[r] bytes each, recv those from rank 0, 1, ...
  // send_bytes[r] on rank s equals recv_bytes[s] on rank r.
  virtual void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                          std::span<std::byte> recv, std::span<const std::int64_t> recv_bytes) = 0;

  // Whether messages pass through memory of the host: only there can those of a node meet (Levels::two).
  virtual bool uses_host_memory() const { return true; }

  // Whether a graph of kernels (kernels/graph.hpp) may contain these methods: they enqueue, and the host takes no part.
  virtual bool may_be_recorded() const { return false; }

  // Of the host. Its bytes_sent() includes what is sent here.
  Transport& transport() const { return *transport_; }
  std::int64_t rank() const { return transport_->rank(); }
  std::int64_t size() const { return transport_->size(); }
  void set_phase(const char* phase) { transport_->set_phase(phase); }

 private:
  Transport* transport_;
};

// Through the transport itself, for kernels that use the memory of the host: everything is over on return.
class HostExchange final : public DeviceExchange {
 public:
  using DeviceExchange::DeviceExchange;

  std::string name() const override { return transport().name(); }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    transport().all_gather(send, recv, recv_bytes);
  }
  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    transport().all_to_all(send, send_bytes, recv, recv_bytes);
  }
};

// Over any transport: a HostExchange where kernels use the memory of the host; else messages go through memory of the
// host, in which case the methods wait for the kernels before and the copies after.
std::unique_ptr<DeviceExchange> make_device_exchange(Transport& transport);

// By sends and receives of memory of a device, for a transport whose MPI takes that (mpi_device_memory.hpp): the
// methods wait for the kernels before.
std::unique_ptr<DeviceExchange> make_aware_exchange(Transport& transport);

}  // namespace metro
