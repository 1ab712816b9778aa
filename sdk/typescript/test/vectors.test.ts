import 'reflect-metadata';
import { Controller, Module, type INestMicroservice } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { EventPattern, MessagePattern, Payload, RpcException } from '@nestjs/microservices';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { concat, of, throwError } from 'rxjs';
import { silentLog } from '../src/core/log';
import { PluginTcpServer } from '../src/nest/tcp-strategy';

/** The handlers that the vectors need. */
@Controller()
class Handlers {
  @MessagePattern('echo')
  echo(@Payload() data: unknown): unknown {
    return data;
  }

  @MessagePattern({ cmd: 'sum' })
  sum(@Payload() data: number[]): number {
    return data.reduce((sum, value) => sum + value, 0);
  }

  @MessagePattern('err.rpc.str')
  text(): never {
    throw new RpcException('Плохой токен');
  }

  @MessagePattern('err.rpc.obj')
  object(): never {
    throw new RpcException({ code: 401, message: 'bad token', extra: { a: 1 } });
  }

  @MessagePattern('err.error')
  error(): never {
    throw new Error('inner detail');
  }

  @MessagePattern('obs.sync3')
  stream(): unknown {
    return of(1, 2, 3);
  }

  @MessagePattern('obs.err')
  failingStream(): unknown {
    return concat(
      of(1, 2),
      throwError(() => new RpcException('mid')),
    );
  }

  @MessagePattern('undef')
  undef(): undefined {
    return undefined;
  }

  @MessagePattern('nullv')
  nothing(): null {
    return null;
  }

  @EventPattern('evt')
  event(): void {}
}

@Module({ controllers: [Handlers] })
class VectorsModule {}

interface Vector {
  name: string;
  segments_hex: string[];
  reply_hex: string;
  fin: boolean;
}

describe('the wire of NestJS, byte for byte, on the listener of a plugin', () => {
  let app: INestMicroservice;
  let server: PluginTcpServer;

  before(async () => {
    server = new PluginTcpServer({
      host: '127.0.0.1',
      port: () => 0,
      log: silentLog,
      beforeClose: () => Promise.resolve(),
    });
    app = await NestFactory.createMicroservice(VectorsModule, { strategy: server, logger: false });
    await app.listen();
  });

  after(() => app.close());

  const { vectors } = JSON.parse(
    readFileSync(join(process.cwd(), '../../crates/wire/tests/data/nest-tcp-vectors.json'), 'utf8'),
  ) as { vectors: Vector[] };
  for (const vector of vectors) {
    it(vector.name, async () => {
      const socket = connect({ port: server.port, host: '127.0.0.1', noDelay: true });
      await once(socket, 'connect');
      const expected = Buffer.from(vector.reply_hex, 'hex').toString();
      let got = '';
      socket.on('data', (bytes) => (got += String(bytes)));
      for (const segment of vector.segments_hex) {
        await new Promise<void>((sent) => socket.write(Buffer.from(segment, 'hex'), () => sent()));
      }
      if (vector.fin) await once(socket, 'end');
      while (Buffer.byteLength(got) < Buffer.byteLength(expected)) await once(socket, 'data');
      assert.equal(got, expected);
      socket.destroy();
    });
  }
});
