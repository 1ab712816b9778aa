// The work of a control plane on the stack of the existing platform, as its authors would write it: a NestJS 11
// TCP microservice that checks the key and inserts one row per result through a pg pool.
//   node server.js PORT DATABASE_URL KEY    prints "listening"
'use strict';
require('reflect-metadata');
const { timingSafeEqual } = require('node:crypto');
const { MessagePattern, Transport, RpcException } = require('@nestjs/microservices');
const { Controller, Module } = require('@nestjs/common');
const { NestFactory } = require('@nestjs/core');
const { Pool } = require('pg');

const [port, connectionString, key] = process.argv.slice(2);
// Measured on this kind of machine: more connections than this are slower.
const pool = new Pool({ connectionString, max: 16 });
const wanted = Buffer.from(key);

function checkKey(given) {
  const bytes = Buffer.from(String(given ?? ''));
  if (bytes.length !== wanted.length || !timingSafeEqual(bytes, wanted)) throw new RpcException('unauthorized');
}

class Reports {
  async result({ key, executionId, runId, status, outputs }) {
    checkKey(key);
    await pool.query({
      name: 'insert_result',
      text: 'INSERT INTO step_results (execution_id, run_id, status, outputs) VALUES ($1, $2, $3, $4)',
      values: [executionId, runId, status, JSON.stringify(outputs)],
    });
    return { status: 'applied' };
  }
}
const result = Object.getOwnPropertyDescriptor(Reports.prototype, 'result');
MessagePattern('plugin.executor.step_result')(Reports.prototype, 'result', result);
Controller()(Reports);

class Service {}
Module({ controllers: [Reports] })(Service);

(async () => {
  await pool.query(`CREATE TABLE IF NOT EXISTS step_results (
    execution_id uuid PRIMARY KEY, run_id uuid NOT NULL, status text NOT NULL, outputs text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now())`);
  const service = await NestFactory.createMicroservice(Service, {
    transport: Transport.TCP, options: { host: '127.0.0.1', port: Number(port) }, logger: false,
  });
  await service.listen();
  console.log('listening');
})();
